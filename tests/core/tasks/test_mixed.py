"""The mixture of environments' tasks: its shares, its streams, and how it goes on."""

import json
from collections import Counter
from dataclasses import replace
from typing import cast

import pytest

from fakes import make_task
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import MixedStream, ShuffledState, ShuffledStream
from longhaul_core.types import GroupOutcome, Task, TaskKey

ROOMS, MAZES = "fakes/Rooms-v0", "fakes/Mazes-v0"


def tasks_of(environment: str, number: int = 6) -> list[Task]:
    return [replace(make_task(each), environment=environment) for each in range(number)]


def mixture(weights: dict[str, float], *, seed: int = 0) -> MixedStream:
    streams = {name: ShuffledStream(tasks_of(name), seed=seed) for name in weights}
    return MixedStream(streams, weights=weights, seed=seed)


def test_environments_come_as_often_as_their_weights_say() -> None:
    drawn = Counter(task.environment for task in mixture({ROOMS: 1, MAZES: 3}).next(4000))

    # Four standard deviations of a share of 4,000 draws are 4 · sqrt(3/16 / 4000) = 0.027.
    assert drawn[MAZES] / 4000 == pytest.approx(0.75, abs=0.027)
    assert drawn[ROOMS] + drawn[MAZES] == 4000


def test_each_environment_gives_its_own_tasks_in_its_own_order() -> None:
    met = mixture({ROOMS: 1, MAZES: 1}, seed=3).next(40)

    for name in (ROOMS, MAZES):
        of_one = [task for task in met if task.environment == name]
        assert len(of_one) > 12  # more than two passes
        assert of_one == ShuffledStream(tasks_of(name), seed=3).next(len(of_one))


def test_asking_at_once_and_one_by_one_meets_the_same_tasks() -> None:
    stream = mixture({ROOMS: 1, MAZES: 2})

    assert [stream.next(1)[0] for _ in range(30)] == mixture({ROOMS: 1, MAZES: 2}).next(30)


def test_weights_may_change_in_a_resume_and_environments_may_not() -> None:
    stream = mixture({ROOMS: 1, MAZES: 1})
    stream.next(5)
    state = json.loads(json.dumps(stream.state()))

    def go_on(name: str, of_one: object) -> ShuffledStream:
        return ShuffledStream.from_state(tasks_of(name), cast("ShuffledState", of_one))

    resumed = MixedStream.from_state(state, weights={ROOMS: 1, MAZES: 1e6}, go_on=go_on)
    assert {task.environment for task in resumed.next(10)} == {MAZES}
    for others in ({ROOMS: 1.0}, {MAZES: 1.0, ROOMS: 1.0}):
        with pytest.raises(ConfigError, match="resume with the environments"):
            MixedStream.from_state(state, weights=others, go_on=go_on)


def test_an_outcome_of_an_environment_that_is_not_mixed_is_refused() -> None:
    stranger = GroupOutcome(
        task=TaskKey("fakes/Caves-v0", "one"), horizon=1, num_successes=0, num_episodes=1
    )
    with pytest.raises(ValueError, match="fakes/Caves-v0 one is of no environment"):
        mixture({ROOMS: 1}).record([stranger])


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match=f"weight of {MAZES} must .* got {weight:g}"):
        mixture({ROOMS: 1, MAZES: weight})
    with pytest.raises(ConfigError, match="a weight for each"):
        MixedStream({}, weights={}, seed=0)
