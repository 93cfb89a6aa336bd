"""What the trainer makes of rows that hold one step or several: tensors, measures, selection."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longhaul_trainer.config import RunConfig
from longhaul_trainer.training.columns import responses, token_weights
from longhaul_trainer.training.credit import StepCredit, credit_training_step
from longhaul_trainer.training.metrics import agreement, row_metrics
from longhaul_trainer.training.step_metadata import GroupName, StepMetadata
from store_samples import make_task
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def run(**settings: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "memory": {"kind": "full"},
            "optimizer": {"rows": "merged"},
            # Only steps from the same state are compared, so that a step can have no advantage.
            "algorithm": {"name": "hgpo", "history_length": 0, "scale_by_std": False},
        }
        | settings
    )


def note(sample_index: int, step: int, *, reward: float, anchor: str, **place: int) -> StepMetadata:
    return StepMetadata(
        environment="fakes/Counting-v0",
        task_id="task",
        training_step=3,
        group_index=0,
        policy_version=0,
        sample_index=sample_index,
        retry=0,
        horizon=9,
        step=step,
        num_steps=2,
        reward=reward,
        action_valid=True,
        anchor=anchor,
        success=False,
        episode_return=0.0,
        prompt_tokens=7,
        action_tokens=place["tokens"],
        start=place["start"],
        split_reason=None if place["start"] else "first_step",
    )


NOTES = {
    "train-1-0_0_0": (
        note(0, 0, reward=0.0, anchor="start", tokens=2, start=0),
        note(0, 1, reward=2.0, anchor="alone", tokens=1, start=4),
    ),
    "train-1-0_1_0": (
        note(1, 0, reward=0.0, anchor="start", tokens=1, start=0),
        note(1, 1, reward=0.0, anchor="other", tokens=3, start=1),
    ),
    "train-1-0_2_0": (
        note(2, 0, reward=1.0, anchor="nowhere", tokens=1, start=0),
        note(2, 1, reward=1.0, anchor="elsewhere", tokens=1, start=3),
    ),
}
"""Three episodes of one row each. By steps from the same state: only the first two starts."""


def credit() -> StepCredit:
    return credit_training_step(
        NOTES, algorithm=run().algorithm, num_optimizer_steps=1, groups=["train-1-0"]
    )


def test_advantages_and_weights_are_where_the_actions_are_and_nowhere_else() -> None:
    by_row = credit().steps_by_row()
    rows = [by_row["train-1-0_0_0"], [], by_row["train-1-0_2_0"]]

    advantages = responses(rows, [5, 1, 4], lambda step: step.token_advantages)
    weights = responses(rows, [5, 1, 4], token_weights)

    # returns-to-go 0.95 * 2 and 0 from the same state
    assert advantages[0].tolist() == pytest.approx([0.95, 0.95, 0, 0, 0])
    assert [row.tolist() for row in weights.unbind(0)] == [
        pytest.approx([1 / 9, 1 / 9, 0, 0, 1 / 9]),
        [0.0],
        pytest.approx([1 / 9, 0, 0, 1 / 9]),
    ]


def test_agreement_is_over_the_tokens_that_were_sampled() -> None:
    steps = [step for episode in credit().episodes[:1] for step in episode.steps]
    behavior = {"train-1-0_0_0": torch.tensor([-1.0, -1.0, 0.0, 0.0, -1.0])}
    policy = {"train-1-0_0_0": torch.tensor([-1.0, -1.5, -90.0, -90.0, -0.75])}

    found = agreement(policy, behavior, steps=steps)

    assert found["agreement/logprob_difference_mean"] == pytest.approx(0.25)
    assert found["agreement/logprob_difference_max"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        ({}, ["train-1-0_0_0", "train-1-0_1_0"]),
        ({"entropy_coefficient": 0.1}, list(NOTES)),
    ],
)
def test_a_row_stays_in_the_update_if_one_of_its_steps_has_an_advantage(
    loss: dict[str, float], kept: list[str]
) -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            workers: Any = SimpleNamespace(_dispatch_info={"actor": [0]})
            self.actor_rollout_wg = workers
            self._run = run(loss=loss)
            self._credit = credit()

    part = KVBatchMeta(keys=list(NOTES), tags=[{}] * 3, partition_id="train")

    assert Given()._rows_with_gradient(part).keys == kept


@pytest.mark.parametrize(("num_waiting", "further"), [(6, []), (4, [2]), (0, [6])])
def test_what_is_missing_of_the_prefetched_batches_is_asked_for(
    num_waiting: int, further: list[int]
) -> None:
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    asked: list[int] = []

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            self._dynamic_sampling = None
            self._run = run(
                tasks_per_training_step=3,
                sampling={"dynamic": True},
                trainer={"mode": "colocate_async", "prefetch_batches": 2, "max_staleness": 2},
            )
            self._waiting = {GroupName(1, place): make_task(place) for place in range(num_waiting)}

        def _add_prompts_to_generate(self, num_prompts: int) -> int:
            asked.append(num_prompts)
            return num_prompts

        def _add_batch_to_generate(self) -> None:
            asked.append(3)  # verl's own, of a training step

    assert Given().prepare_step() == {}
    assert asked == [*further, 3]


def test_the_rows_of_a_training_step_are_measured() -> None:
    assert row_metrics(credit(), num_rows=4) == {
        "rows/count": 3,
        "rows/per_episode": 1.0,
        "rows/padding": 1,
        "rows/longest": 7 + 5,
        "rows/prompt_tokens": 21,
        "rows/gap_tokens": 2 + 0 + 2,
        "rows/trained_tokens": 3 + 4 + 2,
    }
