"""What the trainer makes of rows that hold one step or several: tensors, measures, selection."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longhaul_core.evaluation import success_rate_over_tasks
from longhaul_trainer.config import RunConfig
from longhaul_trainer.training.metrics import agreement, row_metrics
from longhaul_trainer.training.step_metadata import EpisodeMetadata, GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of
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


def row(
    sample_index: int, *calls: tuple[int, int], steps: Sequence[tuple[float, str]]
) -> RowMetadata:
    """The one row of an episode: start and tokens of each call, reward and anchor of each step."""
    made_up: list[MadeUpStep] = [
        {"reward": reward, "anchor": anchor, "tokens": tokens}
        for (reward, anchor), (_, tokens) in zip(steps, calls, strict=True)
    ]
    (found,) = rows_of(GroupName(1, 0), sample_index, made_up, per_row=2, prompt_tokens=7).values()
    spans = tuple(replace(s, start=start) for s, (start, _) in zip(found.spans, calls, strict=True))
    return replace(found, spans=spans)


ROWS = {
    "train-1-0_0_0": row(0, (0, 2), (4, 1), steps=[(0.0, "start"), (2.0, "alone")]),
    "train-1-0_1_0": row(1, (0, 1), (1, 3), steps=[(0.0, "start"), (0.0, "other")]),
    "train-1-0_2_0": row(2, (0, 1), (3, 1), steps=[(1.0, "nowhere"), (1.0, "elsewhere")]),
}
"""Three episodes of one row each. By steps from the same state: only the first two starts."""


def credited() -> TrainingStep:
    return TrainingStep.of(
        ROWS, number=1, algorithm=run().algorithm, num_optimizer_steps=1, groups=["train-1-0"]
    ).credited()


def test_advantages_and_weights_are_where_the_actions_are_and_nowhere_else() -> None:
    columns = credited().columns(["train-1-0_0_0", "pad", "train-1-0_2_0"], [5, 1, 4])

    advantages, weights = columns["advantages"], columns["loss_weights"]
    # returns-to-go 0.95 * 2 and 0 from the same state
    assert advantages[0].tolist() == pytest.approx([0.95, 0.95, 0, 0, 0])
    assert [row.tolist() for row in weights.unbind(0)] == [
        pytest.approx([1 / 9, 1 / 9, 0, 0, 1 / 9]),
        [0.0],
        pytest.approx([1 / 9, 0, 0, 1 / 9]),
    ]


def test_agreement_is_over_the_tokens_that_were_sampled() -> None:
    calls = credited().credit[0].calls
    behavior = {"train-1-0_0_0": torch.tensor([-1.0, -1.0, 0.0, 0.0, -1.0])}
    policy = {"train-1-0_0_0": torch.tensor([-1.0, -1.5, -90.0, -90.0, -0.75])}

    found = agreement(policy, behavior, calls=calls)

    assert found["agreement/logprob_difference_mean"] == pytest.approx(0.25)
    assert found["agreement/logprob_difference_max"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        ({}, ["train-1-0_0_0", "train-1-0_1_0"]),
        ({"entropy_coefficient": 0.1}, list(ROWS)),
    ],
)
def test_a_row_stays_in_the_update_if_one_of_its_calls_has_an_advantage(
    loss: dict[str, float], kept: list[str]
) -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            workers: Any = SimpleNamespace(_dispatch_info={"actor": [0]})
            self.actor_rollout_wg = workers
            self._run = run(loss=loss)
            self._step = credited()

    part = KVBatchMeta(keys=list(ROWS), tags=[{}] * 3, partition_id="train")

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
    assert row_metrics(credited().selection, num_rows=4) == {
        "rows/count": 3,
        "rows/per_episode": 1.0,
        "rows/padding": 1,
        "rows/longest": 7 + 5,
        "rows/prompt_tokens": 21,
        "rows/gap_tokens": 2 + 0 + 2,
        "rows/trained_tokens": 3 + 4 + 2,
    }


def test_a_panels_score_is_over_all_samples_and_its_interval_over_the_tasks() -> None:
    from longhaul_trainer.verl.trainer import _score_of

    def played(task: int, *rewards: float) -> list[EpisodeMetadata]:
        return [
            episode
            for sample_index, reward in enumerate(rewards)
            for row in rows_of(GroupName(0, task), sample_index, [{"reward": reward}]).values()
            if (episode := row.episode) is not None
        ]

    episodes = [*played(0, 2.0, 2.0, 2.0), *played(1, 0.0, 0.0, 0.0), *played(2, 2.0, 0.0)]

    score = _score_of(episodes)

    assert (score.num_episodes, score.num_tasks) == (8, 3)
    assert (score.mean_return, score.success_rate) == (1.0, 0.5)
    # as of three episodes: samples of a task mostly agree
    wilson = success_rate_over_tasks([[True] * 3, [False] * 3, [True, False]])
    assert (score.success_low, score.success_high) == (wilson.low, wilson.high)
    assert score.success_high - score.success_low > 0.7
