"""What the pages of groups show: the list of them, and one with its steps, states and credit."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store import queries
from longhaul_core.store.models import EpisodeRow
from longhaul_core.store.queries import (
    EstimatedGroup,
    GroupEpisode,
    GroupFilter,
    GroupId,
    GroupKey,
    GroupPage,
    GroupSteps,
    StateGraph,
    replay,
)
from longhaul_viewer import links
from longhaul_viewer.components.graph_layout import laid_out
from longhaul_viewer.data.episodes import outcome, sample_name
from longhaul_viewer.data.store import reading

__all__ = ["compared_episodes", "group", "groups", "page_data", "waits"]


def groups(run_id: str, where: GroupFilter, *, after: GroupKey | None, limit: int) -> GroupPage:
    """A page of a run's groups, the newest training step first."""
    with reading() as session:
        return queries.list_groups(session, run_id=run_id, where=where, after=after, limit=limit)


def group(wanted: GroupId) -> tuple[GroupSteps, dict[str, Any]]:
    """A group, and what its component draws; `LookupError` if there is none."""
    with reading() as session:
        steps = queries.group_steps(session, wanted)
        graph = queries.state_graph(session, wanted)
        estimated = queries.advantages_by_estimator(session, wanted)
        anchors = queries.anchor_groups(session, wanted)
        beside = _beside(session, steps.episodes[0].summary.episode_id)
    returns = {
        (step.episode_id, step.step_index): step.return_to_go for a in anchors for step in a.steps
    }
    drawn = page_data(steps.episodes, graph, estimated=estimated, returns=returns)
    return steps, drawn | {"parting": steps.parting_step, "beside": beside}


def _beside(session: Session, episode_id: str) -> dict[str, str | None]:
    """Addresses of the groups before and after that of an episode; None where there is none."""
    near = replay.neighbours(session, episode_id=episode_id)
    named = {"earlier": near.earlier_group, "later": near.later_group}
    ids = [each for each in named.values() if each is not None]
    addresses = {
        row.id: links.group_address(
            GroupId(row.run_id, row.phase, row.training_step, row.group_index, row.attempt)
        )
        for row in session.execute(
            select(
                EpisodeRow.id,
                EpisodeRow.run_id,
                EpisodeRow.attempt,
                EpisodeRow.phase,
                EpisodeRow.training_step,
                EpisodeRow.group_index,
            ).where(EpisodeRow.id.in_(ids))
        )
    }
    return {way: None if each is None else addresses[each] for way, each in named.items()}


def waits(wanted: GroupId) -> bool:
    """Whether credit, or another episode, may still come to the group.

    Raises:
        LookupError: There is no such run.
    """
    with reading() as session:
        run = queries.get_run(session, run_id=wanted.run_id).summary
        if run.status != "running" or wanted.attempt != run.attempt:
            return False
        group = queries.get_group(session, wanted).summary
    return group.has_signal is None and group.discard_reason is None


def compared_episodes(episode_ids: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """What the component draws of any episodes of one task, without credit.

    Raises:
        LookupError: There is no such episode.
    """
    with reading() as session:
        episodes = queries.named_episodes(session, episode_ids)
    drawn = page_data(episodes, None, names=names)
    summary = episodes[0].summary
    parting = queries.parting_step(episodes)
    return drawn | {"parting": parting, "goal": summary.goal or summary.task_id}


def page_data(
    episodes: Sequence[GroupEpisode],
    graph: StateGraph | None,
    *,
    estimated: EstimatedGroup | None = None,
    returns: Mapping[tuple[str, int], float | None] | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Episodes, states and advantages as the component reads them.

    Episodes stand in the order in which they part: those that went the same way for longer are
    nearer to each other, and of two ways the one to the higher return comes first.
    """
    node_of = {
        (step.episode_id, step.step_index): edge.source
        for edge in (graph.edges if graph else ())
        for step in edge.steps
    }
    known = names or [sample_name(episode.summary) for episode in episodes]
    named = dict(zip([e.summary.episode_id for e in episodes], known, strict=True))
    ordered = list(episodes) if names else _by_ways(episodes)
    places = laid_out(graph) if graph else {}
    return {
        "episodes": [
            _episode(each, named[each.summary.episode_id], node_of, returns or {})
            for each in ordered
        ],
        "nodes": [
            {
                "number": node.number,
                "anchor": node.anchor_hash,
                "text": node.text,
                "distance": node.distance,
                "column": places[node.number].column,
                "row": places[node.number].row,
                "steps": node.num_steps,
                "episodes": node.num_episodes,
                "starts": node.num_starts,
                "ends": node.num_ends,
            }
            for node in (graph.nodes if graph else ())
        ],
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "steps": [[step.episode_id, step.step_index] for step in edge.steps],
            }
            for edge in (graph.edges if graph else ())
        ],
        "discount": estimated.discount if estimated else None,
        "estimators": [
            {
                "name": each.estimator,
                "summary": each.summary,
                "trained": each.trained,
                "missing": each.missing,
                "episodes": {
                    one.episode_id: {
                        "episode": one.episode_advantage,
                        "steps": one.step_advantages,
                        "advantages": one.advantages,
                    }
                    for one in each.episodes
                },
            }
            for each in (estimated.estimators if estimated else ())
        ],
    }


def _episode(
    episode: GroupEpisode,
    name: str,
    node_of: Mapping[tuple[str, int], int],
    returns: Mapping[tuple[str, int], float | None],
) -> dict[str, Any]:
    summary = episode.summary
    return {
        "id": summary.episode_id,
        "name": name,
        "outcome": outcome(summary),
        "tone": "failed" if summary.failed else "solved" if summary.success else "unsolved",
        "return": summary.episode_return,
        "address": links.address(links.REPLAY, episode=summary.episode_id),
        "steps": [
            {
                "index": step.step_index,
                "anchor": step.anchor_hash,
                "node": node_of.get((summary.episode_id, step.step_index)),
                "action": step.action,
                "valid": step.action_valid,
                "reward": step.reward,
                "shaped": step.shaped_reward,
                "togo": returns.get((summary.episode_id, step.step_index)),
                "advantage": step.advantage,
                "address": links.address(
                    links.REPLAY, episode=summary.episode_id, step=step.step_index
                ),
            }
            for step in episode.steps
        ],
    }


def _by_ways(episodes: Sequence[GroupEpisode]) -> list[GroupEpisode]:
    """See `page_data`; failed tries come last."""
    failed = [each for each in episodes if each.summary.failed]
    ended = [each for each in episodes if not each.summary.failed]
    return [*_parted(ended, 0), *failed]


def _parted(episodes: Sequence[GroupEpisode], step: int) -> list[GroupEpisode]:
    """Episodes that went the same way up to a step, in order."""
    while True:
        if len(episodes) < 2:
            return list(episodes)
        ways: dict[tuple[str, str] | None, list[GroupEpisode]] = {}
        for each in episodes:
            here = each.steps[step] if step < len(each.steps) else None
            way = None if here is None else (here.anchor_hash, here.action)
            ways.setdefault(way, []).append(each)
        if len(ways) > 1 or None in ways:
            break
        step += 1
    in_order = sorted(ways.items(), key=lambda item: -max(map(_return, item[1])))
    return [
        each
        for way, group in in_order
        for each in (group if way is None else _parted(group, step + 1))
    ]


def _return(episode: GroupEpisode) -> float:
    return episode.summary.episode_return or 0.0
