"""Tests for `longhaul_trainer.verl.buffer`: which groups a training step takes, and when."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from longhaul_core.errors import LonghaulError
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def no_agent_loop_died() -> None:
    pass


def make_buffer(groups: Mapping[str, str], *, on_stale: str = "drop", max_staleness: int = 1):  # noqa: ANN201  verl is imported by the tests alone
    """A buffer that found these groups, by name, in these states."""
    from longhaul_trainer.verl.buffer import PARTITION, AsyncGroupBuffer

    buffer = AsyncGroupBuffer(
        trainer_mode="colocate_async",
        trainer_config=DictConfig({}),
        max_off_policy_threshold=max_staleness + 1,
        max_off_policy_strategy=on_stale,
        sampler_kwargs=DictConfig({}),
        require_agent_loops=no_agent_loop_died,
    )
    for name, status in groups.items():
        getattr(buffer, f"{status}_keys")[PARTITION].add(name)
        buffer.prompt_global_steps[PARTITION][name] = int(name.split("-")[1])
        if status == "finished":
            buffer.partitions[PARTITION][f"{name}_0_0"] = {}
    return buffer


def finished_of(groups: Mapping[str, str]) -> set[str]:
    return {name for name, status in groups.items() if status == "finished"}


@pytest.mark.parametrize(
    ("in_flight", "enough"),
    [
        ("train-3-9", True),  # played now: it may come in the next training step
        ("train-2-9", False),  # played in the last one: the next training step is too late
    ],
)
def test_the_learner_waits_for_what_would_be_too_old_later(in_flight: str, *, enough: bool) -> None:
    groups = {"train-3-0": "finished", "train-3-1": "finished", in_flight: "running"}
    buffer = make_buffer(groups, on_stale="wait")

    assert buffer._has_enough_samples(3, "train", 2, finished_of(groups)) is enough


def test_the_learner_does_not_wait_where_what_is_too_old_is_dropped() -> None:
    groups = {"train-3-0": "finished", "train-1-0": "running"}

    assert make_buffer(groups)._has_enough_samples(3, "train", 1, finished_of(groups))


def test_validation_waits_for_nothing_but_its_own_episodes() -> None:
    groups = {"train-1-0": "running"}
    buffer = make_buffer(groups, on_stale="wait")

    assert buffer._has_enough_samples(3, "val", 1, {"validation-3-0"})


def test_the_oldest_groups_are_taken_in_the_order_that_they_were_asked_for() -> None:
    names = ["train-2-10", "train-2-9", "train-10-0", "train-1-11"]
    groups = dict.fromkeys(names, "finished")

    chosen, _, _ = make_buffer(groups)._select_prompt_uids("train", set(names), 3)

    assert chosen == ["train-1-11", "train-2-9", "train-2-10"]


def test_groups_without_any_episode_that_ended_are_said_to_be_so() -> None:
    groups = dict.fromkeys(["train-1-0", "train-1-1"], "finished")
    buffer = make_buffer(groups)
    buffer.partitions["train"].clear()

    with pytest.raises(RuntimeError, match="no materializable trajectories"):
        buffer._select_prompt_uids("train", set(groups), 2)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
@pytest.mark.parametrize("partition", ["train", "val"])
def test_an_error_outside_every_episode_ends_the_run_in_every_mode(
    mode: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group would be learned from without the episode, or validated without it."""
    import transfer_queue

    from longhaul_trainer.verl.buffer import AsyncGroupBuffer, GroupBuffer

    tag = {"is_prompt": True, "status": "failure", "global_steps": 1}
    found = {partition: {"train-1-0": tag, "train-1-0_0_0": {}}}
    monkeypatch.setattr(transfer_queue, "kv_list", lambda: found)  # the door to the network
    buffer = (GroupBuffer if mode == "sync" else AsyncGroupBuffer)(
        trainer_mode=mode,
        trainer_config=DictConfig({}),
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs=DictConfig({}),
        require_agent_loops=no_agent_loop_died,
    )

    with pytest.raises(LonghaulError, match="no episode is to blame for ended 'train-1-0'"):
        buffer.sample(1, partition, 1)


def test_the_more_rows_there_are_the_less_often_they_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import transfer_queue

    buffer = make_buffer({})
    shortest = buffer.poll_interval

    def pause(num_rows: int) -> float:
        found: dict[str, dict[str, dict[str, int]]] = {
            "train": {f"train-1-0_0_{row}": {} for row in range(num_rows)}
        }
        with monkeypatch.context() as patch:
            patch.setattr(transfer_queue, "kv_list", lambda: found)  # the door to the network
            buffer._sync_metadata_from_transfer_queue()
        return buffer.poll_interval

    assert pause(100) == shortest
    assert pause(200_000) == pytest.approx(5.0)  # to list them takes half a second
    assert pause(100) == shortest


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
@pytest.mark.parametrize("partition", ["train", "val"])
def test_a_group_is_not_waited_for_when_the_process_that_played_it_is_gone(
    mode: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transfer_queue

    from longhaul_trainer.verl.buffer import AsyncGroupBuffer, GroupBuffer

    tag = {"is_prompt": True, "status": "running", "global_steps": 1}
    found = {partition: {"train-1-0": tag}}
    monkeypatch.setattr(transfer_queue, "kv_list", lambda: found)  # the door to the network
    looks: list[int] = []

    def gone_at_the_third_look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise LonghaulError("agent loop 1 of 2 is gone")

    buffer = (GroupBuffer if mode == "sync" else AsyncGroupBuffer)(
        trainer_mode=mode,
        trainer_config=DictConfig({}),
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs=DictConfig({}),
        poll_interval=0.01,
        require_agent_loops=gone_at_the_third_look,
    )

    with pytest.raises(LonghaulError, match="agent loop 1 of 2 is gone"):
        buffer.sample(1, partition, 1)


def test_what_is_too_old_is_told_before_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import transfer_queue

    from longhaul_trainer.training.step_metadata import GroupName

    cleared: list[str] = []

    def clear(*, keys: list[str], partition_id: str) -> None:
        cleared.extend(keys)

    monkeypatch.setattr(transfer_queue, "kv_clear", clear)  # the door to the network
    groups = {"train-1-0": "finished", "train-2-0": "finished", "train-1-1": "running"}
    buffer = make_buffer(groups)

    reasons = buffer._terminal_eviction_reasons(3, "train")
    evicted, *_ = buffer._evict_terminal_groups(3, "train", reasons)

    assert evicted == {"train-1-0"}
    assert buffer.thrown_away == {GroupName(1, 0): "stale"}
    assert set(cleared) == {"train-1-0", "train-1-0_0_0"}


@given(
    batch_size=st.integers(1, 4),
    ahead=st.integers(1, 3),
    slack=st.integers(0, 2),
    draw=st.randoms(use_true_random=True),  # seeded; a list of so many would take seconds
)
@settings(max_examples=200, deadline=None)
def test_no_group_is_ever_too_old_and_none_is_lost_if_the_learner_waits(
    batch_size: int, ahead: int, slack: int, draw: Random
) -> None:
    """The whole of a run, in a world where a group takes some ticks, drawn by `draw`."""
    from longhaul_trainer.verl.buffer import all_in_time

    max_staleness = ahead + slack
    waiting: list[tuple[int, int]] = []  # played in training step, finished at tick
    tick = 0

    def play(training_step: int, number: int) -> None:
        waiting.extend((training_step, tick + draw.randint(0, 9)) for _ in range(number))

    play(1, ahead * batch_size)
    for training_step in range(1, 11):
        play(training_step, batch_size)
        while True:
            ready = sorted(one for one in waiting if one[1] <= tick)
            left = sorted(one[0] for one in waiting)
            for one in ready[:batch_size]:
                left.remove(one[0])
            if len(ready) >= batch_size and all_in_time(
                left, after=training_step, batch_size=batch_size, max_staleness=max_staleness
            ):
                break
            assert tick < 1000, waiting
            tick += 1
        for one in ready[:batch_size]:
            assert 0 <= training_step - one[0] <= max_staleness
            waiting.remove(one)
        tick += 1
    assert len(waiting) == ahead * batch_size
