"""Tests for `longhaul_trainer.verl.dynamic_sampling`: verl's own buffer, over a queue in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from longhaul_core.errors import GroupError, LonghaulError
from longhaul_trainer.training.sampling import SamplingRules
from longhaul_trainer.training.step_metadata import GroupName
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
    from longhaul_trainer.verl.dynamic_sampling import DynamicSamplingBuffer

pytestmark = IMPORTS_VERL


def buffer_over(
    world: World, monkeypatch: pytest.MonkeyPatch, **settings: int
) -> DynamicSamplingBuffer:
    from verl.trainer.ppo.v1 import replay_buffer

    from longhaul_trainer.verl.dynamic_sampling import DynamicSampling, DynamicSamplingBuffer

    monkeypatch.setattr(replay_buffer, "tq", world)
    rules = SamplingRules(
        num_groups=2,
        smallest_group=2,
        dynamic=True,
        max_refills=3,
        extra_tasks=0,
        max_staleness=0,
    )
    return DynamicSamplingBuffer(
        DynamicSampling(
            rules=replace(rules, **settings),
            read_rows=world.read_rows,
            start=world.start,
            stop=world.stop,
            end_requests=world.end_requests,
        ),
        {
            "trainer_mode": "sync",
            "trainer_config": {},
            "max_off_policy_threshold": None,
            "max_off_policy_strategy": "drop",
            "sampler_kwargs": {},
            "poll_interval": 0.0,
            "require_agent_loops": world.require_agent_loops,
            "refill_fn": world.start,
        },
    )


def test_groups_without_a_signal_are_replaced_and_their_rows_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(returns=lambda name: GOOD if name.group_index in (1, 3) else FLAT)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, buffer.first_wave(5))

    rows, metrics = buffer.sample(5, PARTITION, 2)

    # one of two had a signal: 1 * 4 / 2 further tasks
    assert world.num_started == 4
    assert groups_of(rows.keys) == ["train-5-1", "train-5-3"]
    assert buffer.taken == (GroupName(5, 1), GroupName(5, 3))
    assert buffer.thrown_away == {GroupName(5, 0): "no_signal", GroupName(5, 2): "no_signal"}
    assert groups_of(list(world.tags)) == ["train-5-1", "train-5-3"]
    assert "train-5-1" not in world.tags  # the prompts of what was taken are cleared, as verl does
    assert groups_in(buffer.reported([])) == [f"train-5-{place}" for place in range(4)]
    assert metrics["sampling/groups_played"] == 4
    assert metrics["sampling/groups_no_signal"] == 2
    assert metrics["sampling/tokens_no_signal"] == 2 * GROUP_TOKENS


def test_surplus_waits_for_the_next_update_which_starts_fewer_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(returns=lambda name: FLAT if name.group_index < 2 else GOOD)
    buffer = buffer_over(world, monkeypatch, max_staleness=1, num_groups=3)
    world.begin(5, buffer.first_wave(5))
    buffer.sample(5, PARTITION, 3)
    assert buffer.taken == (GroupName(5, 2), GroupName(5, 3), GroupName(5, 4))
    assert buffer.waiting == (GroupName(5, 5),)
    world.kv_clear(partition_id=PARTITION, keys=[k for k in world.tags if "train-5-5" not in k])

    assert buffer.first_wave(6) == 2
    world.begin(6, 2)
    rows, second = buffer.sample(6, PARTITION, 3)

    assert groups_of(rows.keys)[0] == "train-5-5"
    assert buffer.taken[0] == GroupName(5, 5)
    assert second["sampling/groups_that_waited"] == 1
    assert {episode.training_step for episode in buffer.reported([])} == {6}


def test_what_waits_can_be_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda name: FLAT if name.group_index == 0 else GOOD)
    buffer = buffer_over(world, monkeypatch, max_staleness=1)
    world.begin(5, buffer.first_wave(5))
    buffer.sample(5, PARTITION, 2)
    [waiting] = buffer.waiting

    assert buffer.throw_away_waiting() == ((waiting,), GROUP_TOKENS)

    assert str(waiting) not in groups_of(list(world.tags))
    assert buffer.waiting == ()
    assert buffer.first_wave(6) == 2
    assert buffer.throw_away_waiting() == ((), 0)


def test_episodes_in_flight_are_stopped_when_enough_groups_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = GroupName(5, 1)
    world = World(returns=lambda name: GOOD, slow=frozenset({slow}))
    buffer = buffer_over(world, monkeypatch, dynamic=False, extra_tasks=1)
    world.begin(5, buffer.first_wave(5))
    assert world.num_started == 3

    rows, metrics = buffer.sample(5, PARTITION, 2)

    assert groups_of(rows.keys) == ["train-5-0", "train-5-2"]
    assert set(world.told_to_stop) == {str(slow)}
    assert world.num_ended_requests == 1
    assert buffer.thrown_away == {slow: "stopped_early"}
    assert all("train-5-1" not in key for key in [*world.tags, *groups_in(buffer.reported([]))])
    assert metrics["sampling/groups_stopped_early"] == 1
    # what was stopped, and the episode of the group that had ended before
    assert metrics["sampling/tokens_stopped_early"] == 7 + GROUP_TOKENS // 2


def test_nobody_is_stopped_where_everybody_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda name: GOOD)
    buffer = buffer_over(world, monkeypatch, dynamic=False, extra_tasks=1)
    world.begin(5, buffer.first_wave(5))

    buffer.sample(5, PARTITION, 2)

    assert world.told_to_stop == []
    assert world.num_ended_requests == 0
    assert buffer.thrown_away == {GroupName(5, 2): "surplus"}


def test_an_update_takes_what_there_is_when_the_refills_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(returns=lambda name: GOOD if name.group_index == 0 else FLAT)
    buffer = buffer_over(world, monkeypatch, max_refills=2)
    world.begin(5, buffer.first_wave(5))

    buffer.sample(5, PARTITION, 2)

    assert buffer.taken == (GroupName(5, 0),)
    assert world.num_started == 2 + 2 + 2


@pytest.mark.parametrize(
    ("returns", "message"),
    [(FLAT, "in none of 8 groups did the returns differ"), ((1.0,), "no task has two episodes")],
)
def test_an_update_without_any_group_ends_the_run_by_name(
    returns: tuple[float, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(returns=lambda name: returns)
    buffer = buffer_over(world, monkeypatch)
    world.begin(5, buffer.first_wave(5))

    with pytest.raises(GroupError, match=f"training step 5: {message}"):
        buffer.sample(5, PARTITION, 2)


def test_an_error_outside_every_episode_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(returns=lambda _: GOOD)
    buffer = buffer_over(world, monkeypatch)
    world.begin(1, 2)
    world.tags[str(GroupName(1, 0))]["status"] = "failure"

    with pytest.raises(LonghaulError, match="no episode is to blame for ended 'train-1-0'"):
        buffer.sample(1, PARTITION, 2)
