"""The steps of a group's episodes, side by side: what each did, and what it was credited with."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import ValidationError
from sqlalchemy import Integer, String, column, func, select, values
from sqlalchemy.orm import Session

from longhaul_core.advantages.estimators import EstimatorSettings
from longhaul_core.advantages.graphgpo import number_nodes
from longhaul_core.errors import StoreError
from longhaul_core.store.models import CallRow, EpisodeRow, ObservationRow, RunRow, StepRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.episode_lists import (
    EpisodeSummary,
    GroupId,
    episode_summaries,
    unknown_episode,
)
from longhaul_core.store.queries.groups import GroupSummary, get_group
from longhaul_core.types import Observation, Picture

__all__ = [
    "ComparedGroup",
    "ComparedStep",
    "GroupEpisode",
    "GroupStep",
    "GroupSteps",
    "StateText",
    "TrainedTokens",
    "group_steps",
    "in_parts",
    "named_episodes",
    "parting_step",
    "read_compared",
    "state_text",
    "trained_tokens",
    "with_steps",
]

T = TypeVar("T")

_IN_LIST = 500
"""Values per IN list; see `queries.metrics`."""
LONGEST_TEXT = 2_000
"""Characters of a state's text that an answer holds."""


@dataclass(frozen=True, slots=True)
class GroupStep(Answer):
    """One step, without its texts."""

    step_index: int
    """0-based place in the episode."""
    anchor_hash: str
    """Of the state that it was taken in; steps of a group with equal hashes share a state."""
    action: str
    action_valid: bool
    reward: float
    """Paid for this step alone."""
    shaped_reward: float | None
    """What credit was given for; None without credit, as are the four below."""
    return_to_go: float | None
    """Discounted sum of the shaped rewards from this step on."""
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    """Both parts combined; where tokens have their own, their mean."""
    trained: bool


@dataclass(frozen=True, slots=True)
class GroupEpisode(Answer):
    """One episode of the group."""

    summary: EpisodeSummary
    final_anchor_hash: str | None
    """Of the state that it ended in; None if it failed."""
    steps: tuple[GroupStep, ...]


@dataclass(frozen=True, slots=True)
class GroupSteps(Answer):
    """A group, its episodes and their steps."""

    summary: GroupSummary
    episodes: tuple[GroupEpisode, ...]
    """By sample_index and retry, failed tries included."""
    parting_step: int | None
    """The first step, 0-based, at which the episodes that ended do not all do the same in the same
    state; None where they never part, or fewer than two ended."""


def group_steps(
    session: Session,
    group: GroupId,
) -> GroupSteps:
    """A group with every step of its episodes.

    Args:
        session: Only read from.
        group: Which.

    Raises:
        LookupError: There is no such group.
    """
    found = get_group(session, group)
    episodes = with_steps(session, found.members)
    return GroupSteps(found.summary, episodes, parting_step(episodes))


def named_episodes(session: Session, episode_ids: Sequence[str]) -> tuple[GroupEpisode, ...]:
    """Episodes with their steps, of any groups, in the order given.

    Raises:
        LookupError: There is no such episode.
    """
    found: dict[str, EpisodeSummary] = {}
    for part in in_parts(episode_ids):
        for row in session.execute(episode_summaries().where(EpisodeRow.id.in_(part))):
            summary = EpisodeSummary(*row)
            found[summary.episode_id] = summary
    missing = [each for each in episode_ids if each not in found]
    if missing:
        raise unknown_episode(missing[0])
    return with_steps(session, [found[each] for each in episode_ids])


def in_parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Values in lists that a statement takes at once."""
    for start in range(0, len(values), _IN_LIST):
        yield values[start : start + _IN_LIST]


def with_steps(session: Session, members: Sequence[EpisodeSummary]) -> tuple[GroupEpisode, ...]:
    """Episodes with their steps, in the order given."""
    ids = [member.episode_id for member in members]
    steps: dict[str, list[GroupStep]] = defaultdict(list)
    finals: dict[str, str | None] = {}
    for part in in_parts(ids):
        for episode_id, *row in session.execute(
            select(StepRow.episode_id, *columns(GroupStep, StepRow))
            .where(StepRow.episode_id.in_(part))
            .order_by(StepRow.episode_id, StepRow.step_index)
        ):
            steps[episode_id].append(GroupStep(*row))
        ends = select(EpisodeRow.id, EpisodeRow.final_anchor_hash).where(EpisodeRow.id.in_(part))
        finals |= dict(iter(session.execute(ends)))
    return tuple(
        GroupEpisode(member, finals[member.episode_id], tuple(steps[member.episode_id]))
        for member in members
    )


def parting_step(episodes: Iterable[GroupEpisode]) -> int | None:
    """The first step at which the episodes that ended do not all do the same in the same state.

    None where they never part, or fewer than two ended.
    """
    paths = [
        [(step.anchor_hash, step.action) for step in episode.steps]
        for episode in episodes
        if not episode.summary.failed
    ]
    if len(paths) < 2:
        return None
    shortest = min(map(len, paths))
    for place in range(shortest):
        if len({path[place] for path in paths}) > 1:
            return place
    return shortest if len({len(path) for path in paths}) > 1 else None


class StateText(NamedTuple):
    """What is stored of a state."""

    anchor: str
    """The anchor state itself, by which states are compared."""
    shown: str
    """The observation of the first step that was taken in it, or of the end of an episode."""


class ComparedStep(NamedTuple):
    """A step that is compared with others, and the episode it is of."""

    episode: GroupEpisode
    step: GroupStep
    node: int
    """Of the state it was taken in, see `ComparedGroup`."""
    next_node: int
    """Of the state that it led to; 0 for the goal."""


@dataclass(frozen=True)
class ComparedGroup:
    """The episodes of a group that are compared: those that ended, by sample_index.

    States are numbered as `number_nodes` does: 0 is the goal, others from 1 on in the order in
    which they first appear.
    """

    group: GroupSteps
    config: Mapping[str, Any]
    """The run's resolved configuration; empty for one that is no JSON object."""
    settings: EstimatorSettings
    """Of the run; the defaults where its configuration has none."""
    texts: Mapping[str, StateText]
    """Of the states, by hash; those whose text was removed are absent."""

    @cached_property
    def episodes(self) -> tuple[GroupEpisode, ...]:
        """Those that ended, with a step at least."""
        return tuple(e for e in self.group.episodes if not e.summary.failed and e.steps)

    @property
    def similarity(self) -> float | None:
        """From which likeness on states count as one; None where only equal ones do.

        They do too where the text of a state was removed, which cannot be compared.
        """
        known = all(key in self.texts for key in self._hashes)
        return self.settings.anchor_similarity if known else None

    @cached_property
    def anchors(self) -> list[list[str]]:
        """For each episode the state of each step: a text where states may be alike, or a hash."""
        return [[self._name(step.anchor_hash) for step in e.steps] for e in self.episodes]

    @cached_property
    def finals(self) -> list[str | None]:
        """For each episode the state that it ended in, in the same way; None for the goal."""
        return [
            None if e.summary.success else self._name(e.final_anchor_hash or "")
            for e in self.episodes
        ]

    @cached_property
    def steps(self) -> tuple[ComparedStep, ...]:
        """Every step, episode by episode, with its states."""
        if not self.episodes:
            return ()
        nodes = iter(number_nodes(self.anchors, self.finals, similarity=self.similarity).tolist())
        found: list[ComparedStep] = []
        for episode in self.episodes:
            node = next(nodes)
            for step in episode.steps:
                found.append(ComparedStep(episode, step, node, following := next(nodes)))
                node = following
        return tuple(found)

    @cached_property
    def hash_of_node(self) -> dict[int, str | None]:
        """The hash of the state that first had a node's number; None for the goal."""
        found: dict[int, str | None] = {0: None}
        for compared in self.steps:
            found.setdefault(compared.node, compared.step.anchor_hash)
            if compared.step is compared.episode.steps[-1]:
                found.setdefault(compared.next_node, compared.episode.final_anchor_hash)
        return found

    def text_of_node(self, node: int) -> str | None:
        """The beginning of what a state shows; None for the goal, and where it was removed."""
        text = self.texts.get(self.hash_of_node[node] or "")
        return None if text is None else text.shown[:LONGEST_TEXT]

    @cached_property
    def _hashes(self) -> set[str]:
        return {
            key
            for episode in self.episodes
            for key in (*(s.anchor_hash for s in episode.steps), episode.final_anchor_hash)
            if key is not None
        }

    def _name(self, anchor_hash: str) -> str:
        return anchor_hash if self.similarity is None else self.texts[anchor_hash].anchor


def read_compared(session: Session, group: GroupId, *, texts: bool = True) -> ComparedGroup:
    """What of a group is compared.

    Args:
        session: Only read from.
        group: Which.
        texts: Read the texts of all states; without, only where states may be alike.

    Raises:
        LookupError: There is no such group.
        StoreError: The configuration has settings of estimators that are none.
    """
    played = group_steps(session, group)
    config = _run_config(session, run_id=group.run_id)
    try:
        settings = EstimatorSettings.model_validate(config.get("algorithm", {}))
    except ValidationError as error:
        raise StoreError(
            f"the stored configuration of run {group.run_id!r} has an [algorithm] that is "
            f"none of this version: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}"
        ) from error
    if texts or settings.anchor_similarity is not None:
        return ComparedGroup(played, config, settings, _state_texts(session, played.episodes))
    return ComparedGroup(played, config, settings, {})


def _run_config(session: Session, *, run_id: str) -> Mapping[str, Any]:
    """The run's resolved configuration; empty for one that is no JSON object.

    Raises:
        LookupError: There is no such run.
    """
    stored = session.scalar(select(RunRow.config_json).where(RunRow.id == run_id))
    if stored is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    config: object = json.loads(stored or "{}")
    return cast("Mapping[str, Any]", config) if isinstance(config, dict) else {}


def _state_texts(session: Session, episodes: Iterable[GroupEpisode]) -> dict[str, StateText]:
    """What is stored of each state that the episodes went through, by hash, each read once.

    What retention removed is absent.
    """
    places: dict[tuple[str, int], str] = {}
    last: dict[str, str] = {}
    known: set[str] = set()
    for episode in episodes:
        for step in episode.steps:
            if step.anchor_hash not in known:
                known.add(step.anchor_hash)
                places[episode.summary.episode_id, step.step_index] = step.anchor_hash
    for episode in episodes:
        if episode.final_anchor_hash is not None and episode.final_anchor_hash not in known:
            known.add(episode.final_anchor_hash)
            last[episode.summary.episode_id] = episode.final_anchor_hash
    texts: dict[str, StateText] = {}
    for part in in_parts(list(places)):
        # SQLite finds no index for `(episode_id, step_index) IN (VALUES …)`, and does for a join.
        wanted = (
            values(column("episode_id", String), column("step_index", Integer), name="wanted")
            .data(list(part))
            .cte()
        )
        for episode_id, step_index, *seen in session.execute(
            select(
                ObservationRow.episode_id,
                ObservationRow.step_index,
                ObservationRow.anchor_state,
                ObservationRow.text,
                ObservationRow.picture_hashes_json,
            ).join(
                wanted,
                (wanted.c.episode_id == ObservationRow.episode_id)
                & (wanted.c.step_index == ObservationRow.step_index),
            )
        ):
            texts[places[episode_id, step_index]] = state_text(*seen)
    for part in in_parts(list(last)):
        for episode_id, *seen in session.execute(
            select(
                EpisodeRow.id,
                EpisodeRow.final_anchor_state,
                EpisodeRow.final_observation,
                EpisodeRow.final_picture_hashes_json,
            ).where(EpisodeRow.id.in_(part), EpisodeRow.final_observation.is_not(None))
        ):
            texts[last[episode_id]] = state_text(*seen)
    return texts


def state_text(
    anchor_state: str | None, shown: str | None, picture_hashes_json: str | None
) -> StateText:
    """A state, from the columns of an observation."""
    hashes: Collection[str] = json.loads(picture_hashes_json or "[]")
    pictures = tuple(
        Picture(media_type="image/png", content_hash=each)  # an anchor does not read the type
        for each in hashes
    )
    observation = Observation(text=shown or "", pictures=pictures, anchor_state=anchor_state)
    return StateText(observation.anchor, observation.text)


class TrainedTokens(NamedTuple):
    """The trained calls of a step, taken together."""

    num_tokens: int
    """That our engine sampled for them."""
    agent: str
    """Whose they are; the alphabetically first where they are of several."""
    num_agents: int


def trained_tokens(
    session: Session, episode_ids: Sequence[str]
) -> dict[tuple[str, int], TrainedTokens]:
    """What the trained calls of a step come to, by episode and step; none where it has none."""
    found: dict[tuple[str, int], TrainedTokens] = {}
    for part in in_parts(episode_ids):
        for episode_id, step_index, num_tokens, agent, num_agents in session.execute(
            select(
                CallRow.episode_id,
                CallRow.step_index,
                func.sum(CallRow.num_action_tokens),
                func.min(CallRow.agent),
                func.count(CallRow.agent.distinct()),
            )
            .where(CallRow.episode_id.in_(part), CallRow.trained)
            .group_by(CallRow.episode_id, CallRow.step_index)
        ):
            found[episode_id, step_index] = TrainedTokens(num_tokens or 0, agent, num_agents)
    return found
