"""Tests for `longhaul_trainer.verl.filtering`: verl's own buffer, over a queue in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from longhaul_core.errors import GroupError
from longhaul_trainer.training.sampling import SamplingRules
from longhaul_trainer.training.step_metadata import GroupName, episodes_in
from trainer.verl.queue_in_memory import (
    FLAT,
    GOOD,
    GROUP_TOKENS,
    PARTITION,
    World,
    groups_in,
    groups_of,
)
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from longhaul_trainer.verl.filtering import FilteringBuffer

pytestmark = IMPORTS_VERL


def buffer_over(
    world: World, monkeypatch: pytest.MonkeyPatch, *, max_refills: int = 3, on_stale: str = "drop"
) -> FilteringBuffer:
    """For updates of two groups that may be one training step old."""
    from verl.trainer.ppo.v1 import replay_buffer

    from longhaul_trainer.verl.filtering import FilteringBuffer

    monkeypatch.setattr(replay_buffer, "tq", world)
    return FilteringBuffer(
        SamplingRules(
            num_groups=2,
            smallest_group=2,
            dynamic=True,
            max_refills=max_refills,
            extra_tasks=0,
            max_staleness=1,
        ),
        world.read_rows,
        {
            "trainer_mode": "colocate_async",
            "trainer_config": {},
            "max_off_policy_threshold": 2,
            "max_off_policy_strategy": on_stale,
            "sampler_kwargs": {},
            "poll_interval": 0.0,
            "refill_fn": world.start,
            "require_agent_loops": world.require_agent_loops,
        },
    )


@pytest.mark.parametrize("on_stale", ["drop", "wait"])
def test_each_group_without_a_signal_is_left_out_and_replaced_by_one_task(
    on_stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(returns=lambda name: FLAT if name.group_index in (0, 2, 4) else GOOD)
    buffer = buffer_over(world, monkeypatch, on_stale=on_stale)
    world.begin(5, 4)  # a batch ahead

    rows, metrics = buffer.sample(5, PARTITION, 2)

    assert buffer.taken == (GroupName(5, 1), GroupName(5, 3))
    assert buffer.thrown_away == dict.fromkeys([GroupName(5, k) for k in (0, 2, 4)], "no_signal")
    assert world.num_started == 4 + 2 + 1
    taken = episodes_in(world.read_rows(rows.keys))
    assert groups_in(buffer.reported(taken)) == [f"train-5-{place}" for place in range(5)]
    assert groups_of(list(world.tags)) == [f"train-5-{place}" for place in (1, 3, 5, 6)]
    assert metrics["sampling/groups_taken"] == 2
    assert metrics["sampling/groups_no_signal"] == 3
    assert metrics["sampling/tokens_no_signal"] == 3 * GROUP_TOKENS


def test_what_was_left_out_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda name: FLAT if name == GroupName(5, 0) else GOOD)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, 4)
    buffer.sample(5, PARTITION, 2)
    world.kv_clear(partition_id=PARTITION, keys=[k for k in world.tags if k[8] in "12"])
    buffer.thrown_away = {}

    _, metrics = buffer.sample(6, PARTITION, 2)

    assert buffer.taken == (GroupName(5, 3), GroupName(5, 4))
    assert buffer.reported([]) == []
    assert buffer.thrown_away == {}
    assert metrics["sampling/groups_no_signal"] == 0


def test_a_group_that_is_too_old_is_too_old_whatever_its_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(returns=lambda name: FLAT if name.training_step == 3 else GOOD)
    buffer = buffer_over(world, monkeypatch)
    world.begin(3, 1)
    world.begin(5, 2)

    buffer.sample(5, PARTITION, 2)

    assert buffer.thrown_away == {GroupName(3, 0): "stale"}
    assert buffer.reported([]) == []


def test_a_group_in_flight_is_waited_for_when_the_refills_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = GroupName(5, 1)
    world = World(
        returns=lambda name: FLAT if name.group_index > 1 else GOOD, slow=frozenset({slow})
    )
    buffer = buffer_over(world, monkeypatch, max_refills=1)
    world.begin(5, 4)
    polls = 0

    def wait(partition_id: str, last_debug_time: float) -> float:
        nonlocal polls
        polls += 1
        assert world.num_started == 4 + 2
        if polls == 3:
            world.stop([str(slow)])  # becomes whole, with one of its episodes
        return last_debug_time

    monkeypatch.setattr(buffer, "_wait_for_next_poll", wait)

    buffer.sample(5, PARTITION, 2)

    assert polls == 3
    assert buffer.taken == (GroupName(5, 0),)
    assert buffer.thrown_away[slow] == "too_small"


def test_each_training_step_has_its_own_refills(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda name: GOOD if name.group_index in (0, 3) else FLAT)
    buffer = buffer_over(world, monkeypatch, max_refills=1)
    for training_step in (5, 6):
        world.begin(training_step, 2)

        buffer.sample(training_step, PARTITION, 2)

        assert [name.group_index for name in buffer.taken] == [0, 3]
        assert world.num_started == 2 + 2
        world.kv_clear(partition_id=PARTITION, keys=list(world.tags))


def test_validation_is_left_alone_whatever_lies_in_the_training_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(returns=lambda name: FLAT)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, 2)
    world.tags["pad7f_0_0"] = {"status": "success"}  # of the update whose weights are validated
    world.panel = {
        "validation-5-0": {"is_prompt": True, "status": "finished", "global_steps": 5},
        "validation-5-0_0_0": {"status": "success"},
    }

    rows, metrics = buffer.sample(5, "val", 1)

    assert rows.keys == ["validation-5-0_0_0"]
    assert metrics == {}
    assert buffer.thrown_away == {}


def test_padding_rows_of_an_update_are_of_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda name: GOOD)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, 2)
    world.tags["pad7f_0_0"] = {"status": "success"}

    buffer.sample(5, PARTITION, 2)

    assert buffer.taken == (GroupName(5, 0), GroupName(5, 1))


@pytest.mark.parametrize(
    ("returns", "message"),
    [(FLAT, "in none of 8 groups did the returns differ"), ((1.0,), "no task has two episodes")],
)
def test_an_update_without_any_group_ends_the_run_by_name(
    returns: tuple[float, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(returns=lambda name: returns)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, 2)

    with pytest.raises(GroupError, match=f"training step 5: {message}"):
        buffer.sample(5, PARTITION, 2)

    assert world.num_started == 2 + 3 * 2
