"""Tasks in shuffled passes."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_task
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import ShuffledStream

TASKS = [make_task(number) for number in range(7)]


def test_every_pass_gives_each_task_once_in_an_order_of_its_own() -> None:
    stream = ShuffledStream(TASKS, seed=3)
    passes = [stream.next(len(TASKS)) for _ in range(4)]
    for one in passes:
        assert Counter(task.task_id for task in one) == Counter(task.task_id for task in TASKS)
    assert len({tuple(task.seed for task in one) for one in passes}) == 4


def test_the_order_is_the_same_on_every_machine_and_numpy() -> None:
    seeds = [task.seed for task in ShuffledStream(TASKS, seed=3).next(14)]
    assert seeds == [0, 4, 1, 5, 6, 3, 2, 0, 6, 2, 1, 3, 4, 5]


@given(seed=st.integers(0, 2**53), before=st.integers(0, 30), after=st.integers(0, 30))
def test_a_stream_goes_on_exactly_from_its_state(seed: int, before: int, after: int) -> None:
    undisturbed = ShuffledStream(TASKS, seed=seed).next(before + after)
    stream = ShuffledStream(TASKS, seed=seed)
    stream.next(before)
    state = json.loads(json.dumps(stream.state()))
    assert ShuffledStream.from_state(TASKS, state).next(after) == undisturbed[before:]


def test_how_many_are_taken_at_once_does_not_matter() -> None:
    at_once = ShuffledStream(TASKS, seed=1).next(20)
    stream = ShuffledStream(TASKS, seed=1)
    assert [task for _ in range(20) for task in stream.next(1)] == at_once


def test_a_state_of_tasks_with_other_data_is_refused() -> None:
    given_data = [replace(task, data=f'{{"n": {number}}}') for number, task in enumerate(TASKS)]
    changed = [*given_data[:-1], replace(TASKS[-1], data="{}")]
    state = ShuffledStream(given_data, seed=1).state()

    ShuffledStream.from_state(given_data, state)
    with pytest.raises(ConfigError, match="are not those that the stream was begun with"):
        ShuffledStream.from_state(changed, state)
