"""Tests for `longhaul_core.store.queries.comparison`."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from longhaul_core.errors import ComparisonError
from longhaul_core.evaluation import paired_difference, sign_test_p_value
from longhaul_core.store import Evaluation, PanelTasks, StoreWriter, queries
from longhaul_core.store.queries import Checkpoint
from longhaul_core.types import Split, Task
from store_samples import make_failure, make_record, make_task, make_trajectory, run_started
from variation import assert_several

PANEL = [make_task(number, split=Split.VALIDATION) for number in range(6)]
A, B = Checkpoint("one", 0), Checkpoint("two", 4)


def evaluated(
    checkpoint: Checkpoint,
    results: Mapping[int, Sequence[float | None]],
    *,
    tasks: Sequence[Task] = PANEL,
    panel: str = "validation",
) -> list[object]:
    """A run, its panel and its episodes: a return for each try, None where it failed."""
    played = [
        make_record(
            make_failure(task=tasks[place], sample_index=sample_index)
            if value is None
            else make_trajectory(
                task=tasks[place],
                sample_index=sample_index,
                rewards=(0.0, value),
                success=value > 0.5,
            ),
            run_id=checkpoint.run_id,
            phase="validation",
            training_step=checkpoint.training_step,
            group_index=place,
        )
        for place, tries in results.items()
        for sample_index, value in enumerate(tries)
    ]
    return [
        run_started(checkpoint.run_id),
        PanelTasks(
            run_id=checkpoint.run_id, name=panel, split=Split.VALIDATION, tasks=tuple(tasks)
        ),
        *played,
        Evaluation(
            run_id=checkpoint.run_id,
            attempt=0,
            training_step=checkpoint.training_step,
            panel=panel,
            split=Split.VALIDATION,
            num_episodes=len(played),
            mean_return=0.0,
            success_rate=0.0,
        ),
    ]


def one_each(*returns: float | None) -> dict[int, list[float | None]]:
    return {place: [value] for place, value in enumerate(returns)}


def write(writer: StoreWriter, *parts: list[object]) -> None:
    writer.write([record for part in parts for record in part])  # type: ignore[misc]


def test_a_comparison_is_the_hand_worked_one(writer: StoreWriter, session: Session) -> None:
    write(
        writer,
        evaluated(A, one_each(0.0, 0.0, 0.0, 1.0, 1.0, 0.25)),
        evaluated(B, one_each(1.0, 1.0, 1.0, 0.0, 1.0, 0.5)),
    )

    found = queries.compare(session, a=A, b=B)

    assert (found.panel, found.num_tasks, found.num_gained, found.num_lost) == (
        "validation",
        6,
        3,
        1,
    )
    assert found.a.success_rate == pytest.approx(2 / 6)
    assert found.b.success_rate == pytest.approx(4 / 6)
    assert found.success is not None
    # flips 3 to 1: 2 (C(4,0) + C(4,1)) / 16
    assert found.success.p_value == 0.625
    assert found.success.difference == pytest.approx(2 / 6)
    assert found.episode_return is not None
    # differences 1, 1, 1, -1, 0, 0.25: mean 0.375, sample deviation 0.802340, t(5) = 2.570582,
    # so t = 1.144866 and the interval is 0.375 ± 0.842
    assert found.episode_return.difference == pytest.approx(0.375)
    assert found.episode_return.low == pytest.approx(-0.467, abs=1e-3)
    assert found.episode_return.high == pytest.approx(1.217, abs=1e-3)
    assert found.episode_return.p_value == pytest.approx(0.3041, abs=1e-4)
    assert [task.task_id for task in found.tasks] == [
        f"validation/{number:05}" for number in (3, 0, 1, 2, 4, 5)
    ]
    assert found.tasks[0].a_episode_ids == ("one/0/validation/0/3/0/0",)


def test_b_less_a_is_a_less_b_with_the_sign_turned(writer: StoreWriter, session: Session) -> None:
    write(
        writer,
        evaluated(A, one_each(0.0, 0.5, 1.0, 0.7, 0.2, 0.1)),
        evaluated(B, one_each(0.9, 0.8, 0.1, 1.0, 0.6, 0.0)),
    )

    there = queries.compare(session, a=A, b=B)
    back = queries.compare(session, a=B, b=A)

    assert (there.num_gained, there.num_lost) == (back.num_lost, back.num_gained) == (3, 1)
    for one, other in ((there.success, back.success), (there.episode_return, back.episode_return)):
        assert one is not None
        assert other is not None
        assert one.difference == pytest.approx(-other.difference)
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert one.p_value == pytest.approx(other.p_value)


@pytest.mark.parametrize("seed", range(3))
def test_several_tries_of_a_task_are_one_unit(
    writer: StoreWriter, session: Session, seed: int
) -> None:
    """Against means by task made here."""
    draw = random.Random(seed)

    def played() -> dict[int, list[float | None]]:
        return {
            place: [draw.choice((0.0, 0.25, 1.0)) for _ in range(draw.randint(1, 4))]
            for place in range(len(PANEL))
        }

    a, b = played(), played()
    write(writer, evaluated(A, a), evaluated(B, b))

    found = queries.compare(session, a=A, b=B)

    def rates(of: dict[int, list[float | None]]) -> dict[str, float]:
        return {str(p): sum((v or 0) > 0.5 for v in tries) / len(tries) for p, tries in of.items()}

    before, after = rates(a), rates(b)
    assert_several(after[task] - before[task] for task in before)
    expected = paired_difference(before, after)
    assert found.success is not None
    assert (found.success.difference, found.success.low, found.success.high) == pytest.approx(
        (expected.estimate, expected.low, expected.high)
    )
    up = sum(after[task] > before[task] for task in before)
    down = sum(after[task] < before[task] for task in before)
    assert (found.num_gained, found.num_lost) == (up, down)
    assert found.success.p_value == sign_test_p_value(up, down)


def test_a_task_whose_episodes_failed_is_in_no_difference(
    writer: StoreWriter, session: Session
) -> None:
    write(
        writer,
        evaluated(A, one_each(None, 0.0, 1.0, 1.0, 0.0, 0.0)),
        evaluated(B, one_each(1.0, 1.0, 1.0, 1.0, 0.0, 0.0)),
    )

    found = queries.compare(session, a=A, b=B)

    assert (found.num_unpaired, found.num_gained) == (1, 1)
    assert found.success is not None
    assert found.success.num_tasks == 5
    assert found.a.num_failed_episodes == 1
    assert found.tasks[1].a_success is None
    assert found.tasks[1].a_episode_ids == ("one/0/validation/0/0/0/0",)


def test_panels_that_differ_are_refused_with_what_differs(
    writer: StoreWriter, session: Session
) -> None:
    others = [*PANEL[:4], *(make_task(number, split=Split.VALIDATION) for number in (90, 91, 92))]
    write(
        writer,
        evaluated(A, one_each(0.0, 1.0)),
        evaluated(B, one_each(1.0, 1.0), tasks=others),
    )

    with pytest.raises(ComparisonError, match=r"has 6 tasks, .* has 7, and 4 are in both"):
        queries.compare(session, a=A, b=B)


def test_the_same_panel_is_found_by_its_tasks_whatever_its_name(
    writer: StoreWriter, session: Session
) -> None:
    write(
        writer,
        evaluated(A, one_each(0.0, 1.0, 0.0)),
        evaluated(B, one_each(1.0, 1.0, 0.0), panel="held_out"),
    )

    assert queries.compare(session, a=A, b=B).num_gained == 1
    with pytest.raises(LookupError, match="no panel 'test'"):
        queries.compare(session, a=A, b=B, panel="test")


def test_what_is_not_there_is_named(writer: StoreWriter, session: Session) -> None:
    write(writer, evaluated(A, one_each(0.0, 1.0)))

    with pytest.raises(LookupError, match="no run 'nobody'"):
        queries.compare(session, a=A, b=Checkpoint("nobody", 1))
    with pytest.raises(LookupError, match="training step 7; it has them at 0"):
        queries.compare(session, a=A, b=replace(A, training_step=7))
    with pytest.raises(ComparisonError, match="both sides are run 'one'"):
        queries.compare(session, a=A, b=A)


@pytest.mark.parametrize("text", ["run", "@3", "run@", "run@x", "run@-1", "run@9999999999"])
def test_a_result_is_named_by_run_and_training_step(text: str) -> None:
    assert Checkpoint.parse("a@b@12") == Checkpoint("a@b", 12)
    assert str(Checkpoint.parse("a@b@12")) == "a@b@12"
    with pytest.raises(ComparisonError, match="myrun@80"):
        Checkpoint.parse(text)
