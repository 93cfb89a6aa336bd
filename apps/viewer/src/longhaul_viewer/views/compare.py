"""Two runs or checkpoints on one panel: which tasks flipped, and whether that is more than luck."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from longhaul_core.errors import ComparisonError
from longhaul_core.store.queries import Checkpoint, Comparison, PairedEstimate, TaskComparison
from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, tables
from longhaul_viewer.components.blocks import Badge, Fact, Link
from longhaul_viewer.components.group_view import group_view
from longhaul_viewer.data import comparisons, groups

PAGE_SIZE = 100
SHOWN = ("changed", "lost", "gained", "unpaired", "all")


def page() -> None:
    """Two results are chosen above; the answer stands below, flips first."""
    left, right = links.parameter("left"), links.parameter("right")
    if left is not None and right is not None:
        side_by_side(left, right)
        return
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link("Compare")]),
        blocks.title("Compare two results on one panel"),
    )
    first, other = st.columns(2, gap="large")
    with first:
        a = chosen("a", "A, what is measured from")
    with other:
        b = chosen("b", "B, the other")
    if a is None or b is None:
        blocks.html(
            blocks.note(
                "Choose two results: of one run at two training steps, or of two runs that were "
                "evaluated on the same panel. The address then holds both: ?a=RUN@STEP&b=RUN@STEP."
            ),
            *suggested(),
        )
        return
    try:
        found = comparisons.compare(a, b)
    except ComparisonError as error:
        blocks.html(blocks.alert(f"Not compared: {error}."))
        return
    answer(found)
    tasks(found)


def suggested() -> list[str]:
    """Results of the newest runs that can be compared, each pair a link."""
    pairs = comparisons.suggestions()
    if not pairs:
        return []
    return [
        blocks.label("Of the newest runs"),
        "<ul>",
        *(
            f'<li><a href="{escape(address_of(pair))}">{escape(pair.a.run_id)} after step '
            f"{pair.a.training_step} with "
            + ("" if pair.a.run_id == pair.b.run_id else f"{escape(pair.b.run_id)} after ")
            + f"step {pair.b.training_step}</a>: {pair.a.success_rate:.0%} and "
            f"{pair.b.success_rate:.0%} of {pair.a.num_tasks} tasks of {escape(pair.a.panel)}</li>"
            for pair in pairs
        ),
        "</ul>",
    ]


def address_of(pair: comparisons.Suggestion) -> str:
    """The address of a comparison."""
    return links.address(
        links.COMPARE,
        a=f"{pair.a.run_id}@{pair.a.training_step}",
        b=f"{pair.b.run_id}@{pair.b.training_step}",
    )


def chosen(name: str, label: str) -> Checkpoint | None:
    """One side, from the address or chosen here; None while it is not.

    Raises:
        LookupError: The address has something that names no result.
    """
    asked = links.parameter(name)
    checkpoint: Checkpoint | None = None
    if asked is not None:
        try:
            checkpoint = Checkpoint.parse(asked)
        except ComparisonError as error:
            raise LookupError(str(error)) from error
    run_ids = [run.run_id for run in comparisons.runs()]
    of_run, at_step = st.columns([5, 2])
    current = checkpoint.run_id if checkpoint else st.session_state.get(f"{name}-run")
    with of_run:
        if current is not None and current not in run_ids:
            run_ids.insert(0, current)
        run_id = st.selectbox(
            label,
            run_ids,
            index=None if current is None else run_ids.index(current),
            placeholder="a run",
            key=f"{name}-run-of-{current}",
        )
    if run_id is None:
        return None
    st.session_state[f"{name}-run"] = run_id
    steps = sorted({each.training_step for each in comparisons.results(run_id)})
    step = checkpoint.training_step if checkpoint and checkpoint.run_id == run_id else None
    if step is not None and step not in steps:
        return checkpoint  # the comparison says what there is
    with at_step:
        picked = st.selectbox(
            "after training step",
            steps,
            index=None if step is None else steps.index(step),
            placeholder="a result" if steps else "no result on a panel",
            key=f"{name}-step-of-{run_id}-{step}",
        )
    if picked is None:
        return None
    if picked != step:
        links.set_parameters(**{name: f"{run_id}@{picked}"})
    return Checkpoint(run_id, picked)


def answer(found: Comparison) -> None:
    """The differences with their intervals, in a sentence and in a table."""
    blocks.html(
        blocks.badges(
            [
                Badge(f"{found.num_gained} gained", "good" if found.num_gained else "plain"),
                Badge(f"{found.num_lost} lost", "bad" if found.num_lost else "plain"),
                Badge(f"{found.num_tasks} tasks of panel {found.panel}"),
                *(
                    [Badge(f"{found.num_unpaired} tasks without a result on one side", "warn")]
                    if found.num_unpaired
                    else []
                ),
            ]
        ),
        blocks.note(verdict(found)),
    )
    left, right = st.columns(2, gap="large")
    with left:
        blocks.html(
            blocks.label("Success", "share of the panel's tasks"),
            blocks.facts(
                [
                    Fact("A", percent(found.a.success_rate)),
                    Fact("B", percent(found.b.success_rate)),
                    *estimate(found.success, scale=100, unit=" points"),
                ]
            ),
        )
    with right:
        blocks.html(
            blocks.label("Return", "mean over the panel's tasks"),
            blocks.facts(
                [
                    Fact("A", blocks.number(found.a.mean_return)),
                    Fact("B", blocks.number(found.b.mean_return)),
                    *estimate(found.episode_return, scale=1, unit=""),
                ]
            ),
        )


def verdict(found: Comparison) -> str:
    """What the numbers say, in words."""
    if found.success is None:
        return "Fewer than two tasks have a result on both sides: there is nothing to say."
    flips = found.num_gained + found.num_lost
    if not flips:
        return "No task flipped between A and B."
    said = f"p = {found.success.p_value:.3g} by McNemar's exact test on the tasks that flipped"
    if found.success.p_value < 0.05:
        better = "B" if found.num_gained > found.num_lost else "A"
        return f"{better} solves more of the panel than luck explains: {said}."
    return f"So many flips may well be luck: {said}."


def estimate(found: PairedEstimate | None, *, scale: float, unit: str) -> list[Fact]:
    """Lines about a paired difference."""
    if found is None:
        return []
    low, high = (f"{scale * end:+.3g}".replace("-", "−") for end in (found.low, found.high))
    return [
        Fact(
            "B less A",
            f"{scale * found.difference:+.3g}{unit}".replace("-", "−"),
            signed=found.difference,
            total=True,
        ),
        Fact(
            f"{found.confidence:.0%} interval, over {found.num_tasks} tasks",
            f"{low} to {high}",
            explanation="Paired t interval: the tasks are the independent units",
        ),
        Fact(f"p, {found.test}", f"{found.p_value:.3g}", explanation="Two-sided"),
    ]


def tasks(found: Comparison) -> None:
    """The tasks, changed ones first, each with its replays side by side."""
    with st.columns([1, 3])[0]:
        kind = controls.choice("Show", "show", SHOWN, default=SHOWN[0]) or SHOWN[0]
    shown = [each for each in found.tasks if kind == "all" or kind in (change(each), changed(each))]
    if not shown:
        blocks.html(blocks.note(f"No task is {kind}." if kind != "all" else "The panel is empty."))
        return
    blocks.html(
        blocks.label(f"{len(shown)} tasks", "a row shows both episodes beside each other"),
        task_table(shown[:PAGE_SIZE]),
    )
    if len(shown) > PAGE_SIZE:
        blocks.html(blocks.note(f"{len(shown) - PAGE_SIZE} more are not listed."))


def task_table(shown: Sequence[TaskComparison]) -> str:
    """One line a task."""
    return tables.table(
        [
            tables.long("Task", [each.goal or each.task_id for each in shown]),
            tables.pairs("Environment", [(each.environment, each.task_id) for each in shown]),
            tables.badges("Change", [[Badge(change(e), tone(e))] for e in shown]),
            tables.text("A", [percent(each.a_success) for each in shown]),
            tables.text("B", [percent(each.b_success) for each in shown]),
            tables.value("Return of A", [each.a_return for each in shown]),
            tables.value("Return of B", [each.b_return for each in shown]),
        ],
        addresses=[address(each) for each in shown],
    )


def change(task: TaskComparison) -> str:
    """lost, gained, unpaired or same."""
    if task.a_success is None or task.b_success is None:
        return "unpaired"
    if task.a_success == task.b_success:
        return "same"
    return "gained" if task.b_success > task.a_success else "lost"


def changed(task: TaskComparison) -> str:
    """changed, or nothing."""
    return "changed" if change(task) in ("lost", "gained") else ""


def tone(task: TaskComparison) -> blocks.Tone:
    """Colour of the change."""
    tones: dict[str, blocks.Tone] = {"gained": "good", "lost": "bad", "unpaired": "warn"}
    return tones.get(change(task), "plain")


def address(task: TaskComparison) -> str:
    """The two replays beside each other; the one there is where the other side has none."""
    sides = [each[0] for each in (task.a_episode_ids, task.b_episode_ids) if each]
    if len(sides) < 2:
        return links.address(links.REPLAY, episode=sides[0]) if sides else links.COMPARE
    return links.address(
        links.COMPARE,
        a=links.parameter("a"),
        b=links.parameter("b"),
        left=sides[0],
        right=sides[1],
    )


def percent(share: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None else f"{share:.0%}"


def side_by_side(left: str, right: str) -> None:
    """Two episodes of one task: where they part, and step by step what each saw and wrote."""
    drawn = groups.compared_episodes([left, right], ["A", "B"])
    back = links.address(links.COMPARE, a=links.parameter("a"), b=links.parameter("b"))
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link("Compare", back), Link("side by side")]),
        blocks.title(drawn["goal"]),
    )
    group_view(drawn, key=f"{left}|{right}", beside=True)


page()
