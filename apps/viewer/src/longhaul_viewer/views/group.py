"""The episodes of a group side by side: what each did at every step, and what it earned."""

from longhaul_core.store.queries import EpisodeSummary, GroupSummary
from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, group_map, tables
from longhaul_viewer.components.blocks import Badge, Link


def page() -> None:
    """A table of the episodes, and their steps above each other."""
    key = links.group_key()
    group = data.group(key)
    header(key, group.summary, group.members)
    blocks.html(episodes_table(group.members))
    blocks.html(
        blocks.label("Step by step", "★ paid, × invalid action; a click replays the step"),
        group_map.group_map([steps(one) for one in group.members]),
    )


def header(key: links.GroupKey, summary: GroupSummary, members: tuple[EpisodeSummary, ...]) -> None:
    """What was to be done, how often it was, and whether there was anything to learn."""
    solved = sum(bool(one.success) for one in members)
    blocks.html(
        blocks.trail(
            [
                Link("Runs", links.RUNS),
                Link(key.run_id, links.address(links.RUN, run=key.run_id)),
                Link("Episodes", links.address(links.EPISODES, run=key.run_id)),
                Link(f"{key.phase} {key.training_step}, group {key.group_index}"),
            ]
        ),
        blocks.title(summary.goal or summary.task_id),
        blocks.badges(
            [
                Badge(f"{len(members)} episodes"),
                Badge(f"{solved} solved", "good" if solved else "plain"),
                Badge(signal(summary)),
                Badge(f"{summary.environment} · {summary.task_id}"),
            ]
        ),
    )


def signal(summary: GroupSummary) -> str:
    """Whether the policy could learn something from the group."""
    match summary.max_abs_advantage:
        case None:
            return "no credit"
        case 0.0:
            return "no signal: every advantage is 0"
        case largest:
            return f"largest |advantage| {blocks.number(largest)}"


def episodes_table(members: tuple[EpisodeSummary, ...]) -> str:
    """One line an episode."""
    return tables.table(
        [
            tables.text("Episode", [data.sample_name(one) for one in members]),
            tables.text("Outcome", [data.outcome(one) for one in members]),
            tables.value("Return", [one.episode_return for one in members]),
            tables.value(
                "Advantage", [one.episode_advantage for one in members], hint="The episode part"
            ),
            tables.value("Steps", [one.num_steps for one in members], form="d"),
            tables.value("Invalid actions", [one.num_invalid_actions for one in members], form="d"),
            tables.value("Tokens written", [one.num_action_tokens for one in members], form=",d"),
        ],
        addresses=[links.address(links.REPLAY, episode=one.episode_id) for one in members],
    )


def steps(member: EpisodeSummary) -> group_map.MappedEpisode:
    """The steps of an episode, each with its replay."""
    strip = data.strip(data.episode(member.episode_id))
    return group_map.MappedEpisode(
        name=f"{data.sample_name(member)} · {data.outcome(member)}",
        steps=strip,
        addresses=[
            links.address(links.REPLAY, episode=member.episode_id, step=step.step) for step in strip
        ],
    )


page()
