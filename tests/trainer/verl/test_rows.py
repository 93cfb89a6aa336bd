"""Tests for `longhaul_trainer.verl.rows` and `notes`, through verl's own post-processing."""

import asyncio
from typing import Any

import pytest

from longhaul_trainer.training.step_metadata import GroupName, RowKey, StepMetadata, read_notes
from store_samples import make_trajectory
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

REWARDS = (0.25, -1.0, 2.0)


def rows_of_episode(updates: int = 2) -> list[Any]:
    from longhaul_trainer.verl.rows import to_rows

    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    return to_rows(
        trajectory,
        group=GroupName(3, 5),
        retry=1,
        training_step_of=lambda version: version // updates,
        form="step",
    )


def test_there_is_a_row_for_each_step_with_the_tokens_that_were_read_and_written() -> None:
    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    rows = rows_of_episode()

    assert len(rows) == len(trajectory.steps)
    for row, step in zip(rows, trajectory.steps, strict=True):
        assert tuple(row.prompt_ids) == step.prompt_tokens
        assert tuple(row.response_ids) == step.action_tokens
        assert tuple(row.response_logprobs) == step.behavior_logprobs
        assert row.response_mask == [1] * len(step.action_tokens)


def test_a_note_says_what_credit_needs_to_know() -> None:
    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    (note,) = read_notes([row.extra_fields for row in rows_of_episode()])[1]
    step = trajectory.steps[1]

    assert note == StepMetadata(
        environment=trajectory.task.environment,
        task_id=trajectory.task.task_id,
        training_step=3,
        group_index=5,
        policy_version=7,
        sample_index=3,
        retry=1,
        horizon=50,
        step=1,
        num_steps=3,
        reward=-1.0,
        action_valid=step.action_valid,
        anchor=step.observation.anchor,
        success=True,
        episode_return=1.25,
        prompt_tokens=len(step.prompt_tokens),
        action_tokens=len(step.action_tokens),
        start=0,
        split_reason="one_row_per_step",
    )


@pytest.mark.parametrize(("updates", "training_step"), [(1, 7), (2, 3), (7, 1)])
def test_policy_versions_are_told_to_verl_in_training_steps(
    updates: int, training_step: int
) -> None:
    for row in rows_of_episode(updates):  # sampled by version 7, counted in optimizer steps
        assert row.extra_fields["min_global_steps"] == training_step
        assert row.extra_fields["max_global_steps"] == training_step


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        ("train-12-3_4_5", RowKey("train-12-3", 4, 5)),
        ("validation-0-63_0_49", RowKey("validation-0-63", 0, 49)),
        ("pad0a1b2c_2_0", RowKey("pad0a1b2c", 2, 0)),
    ],
)
def test_keys_are_read_as_verl_writes_them(key: str, parsed: RowKey) -> None:
    assert RowKey.parse(key) == parsed


@pytest.mark.parametrize("key", ["train-1-2", "train_1_2_3", "a_b_c"])
def test_a_key_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RowKey.parse(key)


def test_each_step_keeps_its_reward_through_verls_post_processing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verl gives every row of a session the last row's reward; ours travel beside it."""
    import transfer_queue
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    put: dict[str, Any] = {}

    async def keep(**arguments: Any) -> None:  # noqa: ANN401  whatever verl hands to the queue
        put.update(arguments)

    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", keep)  # verl's door to the network
    actor_class: Any = AgentLoopWorkerTQ
    worker_class = actor_class.__ray_metadata__.modified_class
    worker = worker_class.__new__(worker_class)  # its constructor wants a cluster
    worker.processor = None
    worker.distillation_enabled = worker.stream_teacher_with_rollout = False
    worker.reward_loop_worker_handles = None
    asyncio.run(
        worker._agent_loop_postprocess(
            rows_of_episode(),
            False,
            uid="train-3-5",
            session_id=3,
            global_steps=3,
            raw_prompt="goal",
        )
    )

    keys = [RowKey.parse(key) for key in put["keys"]]
    assert keys == [RowKey("train-3-5", 3, step) for step in range(3)]
    fields = put["fields"]
    notes = read_notes(fields.pop("extra_fields").tolist())
    assert tuple(note.reward for (note,) in notes) == REWARDS
    assert {float(row.sum()) for row in fields["rm_scores"].unbind(0)} == {1.25}
