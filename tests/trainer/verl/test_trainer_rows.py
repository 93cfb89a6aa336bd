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

    part = KVBatchMeta(
        keys=list(ROWS),
        tags=[{"seq_len": 12}, {"seq_len": 11}, {"seq_len": 11}],
        partition_id="train",
    )

    assert Given()._rows_with_gradient(part).keys == kept


NUM_RANKS = 4
TOKENS = (3000, 2800, 700, 650, 900, 400, 20, 90, 60, 1500, 75, 310, 45, 520, 2400, 330)
"""Of rows, in the order that their episodes have; the first ones are long."""


class Learner:
    """The worker group of four ranks; it notes the rows of each update."""

    _dispatch_info: dict[str, list[int]] = {"actor": [*range(NUM_RANKS)]}  # noqa: RUF012  # verl's

    def __init__(self) -> None:
        self.updates: list[Any] = []

    def update_actor(self, rows: Any) -> dict[str, Any]:  # noqa: ANN401
        self.updates.append(rows)
        return {"metrics": {"trained_weight": [1.0], "clip_fraction": [0.0], "mfu": [0.0]}}


def skewed_rows(*, num_groups: int) -> dict[str, RowMetadata]:
    """Rows of one step, eight episodes a group; each third episode is paid."""
    return {
        key: row
        for group in range(num_groups)
        for sample_index in range(8)
        for key, row in rows_of(
            GroupName(1, group), sample_index, [{"reward": float(sample_index % 3 == 0)}]
        ).items()
    }


def tokens_of_ranks(rows: Any) -> list[int]:  # noqa: ANN401
    """What each rank gets of a batch, by verl's own cut of one."""
    return [sum(tag["seq_len"] for tag in part.tags) for part in rows.chunk(NUM_RANKS)]


@pytest.mark.parametrize("num_optimizer_steps", [1, 2])
def test_ranks_read_nearly_equally_many_tokens_in_every_pass(num_optimizer_steps: int) -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.buffer import GroupBuffer
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    learner = Learner()
    rows = skewed_rows(num_groups=8)

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            self._run = run(
                optimizer={"optimizer_steps_per_training_step": num_optimizer_steps},
                algorithm={"name": "grpo"},
                tasks_per_training_step=8,
            )
            self._dynamic_sampling = None
            self.replay_buffer = GroupBuffer.__new__(GroupBuffer)
            self.replay_buffer.taken = tuple(GroupName(1, group) for group in range(8))
            self.global_steps = 1
            workers: Any = learner
            self.actor_rollout_wg = workers
            self.tokenizer = SimpleNamespace(eos_token_id=2)

        def _record_decisions(self, metrics: dict[str, object]) -> None: ...

        def _rows_of(self, keys: Sequence[str], partition: str = "train") -> dict[str, RowMetadata]:
            return rows

        def _fields_for_workers(self, key: str) -> list[str]:
            assert key in rows
            return ["responses"]

    tags = [{"seq_len": tokens} for tokens in sorted(4 * TOKENS)]  # tasks differ in length
    played = KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
    metrics: dict[str, float] = {}
    trainer = Given()
    batch = trainer._balance_batch(played, metrics)
    trainer._step = trainer._current.credited()
    updates = trainer._current.updates
    trainer._update_actor(batch, metrics)

    assert max(tokens_of_ranks(played)) > 1.3 * sum(TOKENS)  # the mean of a rank is one of the 4
    assert sorted(batch.keys) == sorted(played.keys)
    assert batch.fields == ["responses"]
    assert sorted(key for keys in updates.values() for key in keys) == sorted(played.keys)
    for part, keys in updates.items():
        assert set(keys) == set(trainer._current.selection.keys_of(part))
    assert [set(update.keys) for update in learner.updates] == [set(k) for k in updates.values()]
    for read in (batch, *learner.updates, *(batch.select_keys([*k]) for k in updates.values())):
        tokens = tokens_of_ranks(read)
        assert max(tokens) <= 1.05 * sum(tokens) / NUM_RANKS
    waited_for = sum(max(tokens_of_ranks(update)) for update in learner.updates)
    assert metrics["perf/rank_imbalance/actor"] == pytest.approx(
        waited_for * NUM_RANKS / sum(4 * TOKENS)
    )
    assert 1 <= metrics["perf/rank_imbalance/log_probs"] <= 1.05


def test_where_all_episodes_of_an_optimizer_step_failed_its_demonstrations_are_read_alone() -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.buffer import GroupBuffer
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    learner = Learner()
    groups = [GroupName(1, place) for place in range(2)]
    imitated = {
        group: {
            key: row
            for place in range(NUM_RANKS)
            for key, row in rows_of(
                group, place, [{"reward": 1.0}], session=10 + place, demonstration=True
            ).items()
        }
        for group in groups
    }
    sampled = skewed_rows(num_groups=1)
    rows = {**sampled, **imitated[groups[0]], **imitated[groups[1]]}

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            self._run = run(
                optimizer={"optimizer_steps_per_training_step": 2},
                algorithm={"name": "grpo"},
                tasks_per_training_step=2,
                imitation={"coefficient": 0.5, "sources": [{"run": "experts"}]},
            )
            self._dynamic_sampling = None
            self.replay_buffer = GroupBuffer.__new__(GroupBuffer)
            self.replay_buffer.taken = tuple(groups)
            self.global_steps = 1
            workers: Any = learner
            self.actor_rollout_wg = workers
            self.tokenizer = SimpleNamespace(eos_token_id=2)

        def _record_decisions(self, metrics: dict[str, object]) -> None: ...

        def _rows_of(self, keys: Sequence[str], partition: str = "train") -> dict[str, RowMetadata]:
            return {key: rows[key] for key in keys}

        def _fields_for_workers(self, key: str) -> list[str]:
            return ["responses"]

    tags = [{"seq_len": 10 + place} for place in range(len(rows))]
    played = KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
    metrics: dict[str, float] = {}
    trainer = Given()
    batch = trainer._balance_batch(played, metrics)
    trainer._step = trainer._current.credited()
    trainer._update_actor(batch, metrics)

    beside, alone = (set(update.keys) for update in learner.updates)
    assert beside == sampled.keys() | imitated[groups[0]].keys()
    assert alone == imitated[groups[1]].keys()
    assert metrics["actor/optimizer_steps"] == 2


def test_ranks_read_nearly_equally_many_tokens_of_the_rows_that_have_a_gradient() -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    rows = skewed_rows(num_groups=4)
    # In the second and the third group all are paid alike, so that no advantage is left there.
    flat = {
        key: row
        for group in (1, 2)
        for sample_index in range(8)
        for key, row in rows_of(GroupName(1, group), sample_index, [{"reward": 1.0}]).items()
    }
    rows |= flat

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            workers: Any = Learner()
            self.actor_rollout_wg = workers
            self._run = run(algorithm={"name": "grpo"}, tasks_per_training_step=4)
            self._step = TrainingStep.of(
                rows,
                number=1,
                algorithm=self._run.algorithm,
                num_optimizer_steps=1,
                groups=[f"train-1-{group}" for group in range(4)],
            ).credited()

    tags = [{"seq_len": tokens} for tokens in 2 * TOKENS]
    kept = Given()._rows_with_gradient(
        KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
    )

    assert set(kept.keys) == rows.keys() - flat.keys()
    tokens = tokens_of_ranks(kept)
    assert max(tokens) <= 1.05 * sum(tokens) / NUM_RANKS


def test_the_shortest_rows_without_a_gradient_make_up_the_number_that_ranks_need() -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    moving = {
        key: row
        for sample_index in range(6)
        for key, row in rows_of(
            GroupName(1, 0), sample_index, [{"reward": float(sample_index % 2)}]
        ).items()
    }
    flat = {
        key: row
        for sample_index in range(4)
        for key, row in rows_of(GroupName(1, 1), sample_index, [{"reward": 1.0}]).items()
    }
    rows = moving | flat

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            workers: Any = Learner()
            self.actor_rollout_wg = workers
            self._run = run(algorithm={"name": "grpo"}, tasks_per_training_step=2)
            self._step = TrainingStep.of(
                rows,
                number=1,
                algorithm=self._run.algorithm,
                num_optimizer_steps=1,
                groups=["train-1-0", "train-1-1"],
            ).credited()

    tags = [{"seq_len": tokens} for tokens in (*[500] * len(moving), 9000, 60, 8000, 40)]
    kept = Given()._rows_with_gradient(
        KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
    )

    assert set(kept.keys) == {*moving, "train-1-1_1_0", "train-1-1_3_0"}


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

    score = _score_of(episodes, num_planned=10)

    assert (score.num_episodes, score.num_unplayed, score.num_tasks) == (8, 2, 3)
    assert (score.mean_return, score.success_rate) == (1.0, 0.5)
    # as of three episodes: samples of a task mostly agree
    wilson = success_rate_over_tasks([[True] * 3, [False] * 3, [True, False]])
    assert (score.success_low, score.success_high) == (wilson.low, wilson.high)
    assert score.success_high - score.success_low > 0.7
