"""The episodes of a group: what each did at every step, what it earned, and why."""

from dataclasses import astuple

from longhaul_core.store.queries import GroupId, GroupSteps, GroupSummary
from longhaul_viewer import links
from longhaul_viewer.components import blocks, live
from longhaul_viewer.components.blocks import Badge, Link
from longhaul_viewer.components.group_view import group_view
from longhaul_viewer.data import groups as groups_data
from longhaul_viewer.data import store as store_data


def page() -> None:
    """What was to be done, and below it the component that shows how it went."""
    wanted = links.group_id()
    waits = groups_data.waits(wanted)
    seconds = store_data.FOLLOW_SECONDS if waits else store_data.SELDOM_SECONDS
    live.follow(live_part, seconds=seconds)(wanted)


def live_part(wanted: GroupId) -> None:
    """The group as it stands now: while its run goes on, credit may still come."""
    group, drawn = groups_data.group(wanted)
    header(wanted, group)
    group_view(drawn, key="/".join(map(str, astuple(wanted))))


def header(wanted: GroupId, group: GroupSteps) -> None:
    """What was to be done, how often it was, and whether there was anything to learn."""
    summary = group.summary
    ended = [each.summary for each in group.episodes if not each.summary.failed]
    solved = sum(bool(one.success) for one in ended)
    of_step = links.address(
        links.GROUPS,
        run=wanted.run_id,
        show="all",
        phase=wanted.phase,
        training_step=wanted.training_step,
    )
    badges = [
        Badge(f"{solved} of {len(ended)} solved", "good" if solved else "plain"),
        Badge(*signal(summary)),
        Badge(f"{summary.environment} · {summary.task_id}"),
    ]
    if summary.num_failed_episodes:
        tries = "try" if summary.num_failed_episodes == 1 else "tries"
        badges.append(Badge(f"{summary.num_failed_episodes} failed {tries}", "warn"))
    if summary.rolled_back:
        badges.append(Badge("rolled back", "warn"))
    blocks.html(
        blocks.trail(
            [
                Link("Runs", links.RUNS),
                Link(wanted.run_id, links.address(links.RUN, run=wanted.run_id)),
                Link("Groups", links.address(links.GROUPS, run=wanted.run_id)),
                Link(f"{wanted.phase} step {wanted.training_step}", of_step),
                Link(f"group {wanted.group_index}"),
            ]
        ),
        blocks.title(summary.goal or summary.task_id),
        blocks.badges(badges),
    )


def signal(summary: GroupSummary) -> Badge:
    """Whether the policy could learn something from the group, and if not, why."""
    if summary.discard_reason is not None:
        return Badge(f"discarded: {summary.discard_reason.replace('_', ' ')}", "warn")
    match summary.max_abs_advantage:
        case None:
            return Badge("no credit")
        case 0.0:
            return Badge("no signal: every advantage is 0", "warn")
        case largest:
            return Badge(f"largest |advantage| {blocks.number(largest)}")


page()
