"""What every stream of training tasks keeps to, whatever its order."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import make_task
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import (
    DifficultyState,
    DifficultyStream,
    MixedState,
    MixedStream,
    ShuffledStream,
    TaskStream,
)
from longhaul_core.types import GroupOutcome, Task

TASKS = [make_task(number) for number in range(5)]
RULES = {"uniform_share": 0.3, "smoothing": 0.5}
Begin = Callable[[list[Task], int], TaskStream]
GoOn = Callable[[list[Task], Any], TaskStream]

KINDS: dict[str, tuple[Begin, GoOn]] = {
    "shuffled": (
        lambda tasks, seed: ShuffledStream(tasks, seed=seed),
        ShuffledStream.from_state,
    ),
    "difficulty": (
        lambda tasks, seed: DifficultyStream(tasks, seed=seed, **RULES),
        lambda tasks, state: DifficultyStream.from_state(tasks, state, **RULES),
    ),
}

NAMES = ("fakes/Counting-v0", "fakes/Other-v0")
WEIGHTS = {NAMES[0]: 1.0, NAMES[1]: 2.0}


def shared_by_two(tasks: list[Task]) -> dict[str, list[Task]]:
    """The tasks of two environments, whose ids are the same ones."""
    return {name: [replace(task, environment=name) for task in tasks] for name in NAMES}


def mixed(tasks: list[Task], seed: int) -> MixedStream:
    streams = {
        name: DifficultyStream(listed, seed=seed, **RULES)
        for name, listed in shared_by_two(tasks).items()
    }
    return MixedStream(streams, weights=WEIGHTS, seed=seed)


def mixed_again(tasks: list[Task], state: MixedState) -> MixedStream:
    return MixedStream.from_state(
        state,
        weights=WEIGHTS,
        go_on=lambda name, of_one: DifficultyStream.from_state(
            shared_by_two(tasks)[name], cast("DifficultyState", of_one), **RULES
        ),
    )


KINDS["mixed"] = (mixed, mixed_again)

every_kind = pytest.mark.parametrize(("begin", "go_on"), KINDS.values(), ids=KINDS)


def outcomes_of(tasks: list[Task], successes: list[int]) -> list[GroupOutcome]:
    return [
        GroupOutcome(task=task.key, horizon=3, num_successes=solved, num_episodes=4)
        for task, solved in zip(tasks, successes, strict=True)
    ]


@every_kind
@settings(deadline=None)
@given(
    seed=st.integers(0, 2**53),
    steps=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=8),
)
def test_a_run_killed_after_any_training_step_meets_the_tasks_it_would_have_met(
    begin: Begin, go_on: GoOn, seed: int, steps: list[list[int]]
) -> None:
    def tasks_of_run(killed_after: int | None) -> list[list[Task]]:
        stream, met = begin(TASKS, seed), list[list[Task]]()
        for done, successes in enumerate(steps):
            if done == killed_after:
                stream = go_on(TASKS, json.loads(json.dumps(stream.state())))
            met.append(stream.next(3))
            stream.record(outcomes_of(met[-1], successes))
        return met

    undisturbed = tasks_of_run(None)
    for killed_after in range(len(steps)):
        assert tasks_of_run(killed_after) == undisturbed, f"killed after step {killed_after}"


@every_kind
def test_equal_seeds_give_equal_streams_and_others_do_not(begin: Begin, go_on: GoOn) -> None:
    first, again, other = (begin(TASKS, seed).next(20) for seed in (1, 1, 2))
    assert first == again != other


@every_kind
def test_every_task_comes(begin: Begin, go_on: GoOn) -> None:
    stream = begin(TASKS, 0)
    met: set[str] = set()
    for _ in range(60):
        (task,) = stream.next(1)
        met.add(task.task_id)
        stream.record(outcomes_of([task], [0]))
    assert met == {task.task_id for task in TASKS}


@every_kind
def test_nothing_asked_for_changes_nothing(begin: Begin, go_on: GoOn) -> None:
    stream = begin(TASKS, 0)
    assert stream.next(0) == []
    stream.record([])
    assert stream.state() == begin(TASKS, 0).state()


@every_kind
@pytest.mark.parametrize("others", [TASKS[:-1], TASKS[::-1]], ids=["fewer", "another order"])
def test_a_stream_is_not_continued_over_other_tasks(
    begin: Begin, go_on: GoOn, others: list[Task]
) -> None:
    with pytest.raises(ConfigError, match=f"the {len(others)} training tasks .* are not those"):
        go_on(others, begin(TASKS, 0).state())


@every_kind
def test_what_no_stream_can_be_made_of_is_refused(begin: Begin, go_on: GoOn) -> None:
    with pytest.raises(ConfigError, match="at least 1 task, got 0"):
        begin([], 0)
    with pytest.raises(ConfigError, match="got -1"):
        begin(TASKS, -1)
    with pytest.raises(ValueError, match="-2"):
        begin(TASKS, 0).next(-2)
