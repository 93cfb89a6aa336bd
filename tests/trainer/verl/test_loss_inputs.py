"""What the loss read of a micro-batch, and who says so: tensors in, rows of the store out."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sqlalchemy import text

from longhaul_core.store import StoreWriter, read_only_engine
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.training.step_metadata import METADATA, GroupName, RowMetadata, packed
from row_metadata import beside, rows_of, span
from store_samples import make_record, make_trajectory, run_started
from trainer.verl.updates import Reports, WriterBehind
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch.distributed import ProcessGroup

    from longhaul_trainer.verl.loss_inputs import RecordWriter, ReportedLoss


pytestmark = IMPORTS_VERL


def micro_batch(
    rows: list[RowMetadata],
    *,
    advantages: list[list[float]],
    weights: list[list[float]],
    old_logprobs: list[list[float]],
) -> "TensorDict":
    from verl.utils import tensordict_utils as tu

    def jagged(lists: list[list[float]], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.nested.as_nested_tensor(
            [torch.tensor(numbers, dtype=dtype) for numbers in lists], layout=torch.jagged
        )

    return tu.get_tensordict(
        {
            "prompts": jagged([[1.0]] * len(rows), torch.int64),
            "responses": jagged(advantages, torch.int64),
            "loss_mask": jagged([[1] * len(row) for row in advantages], torch.int64),
            "advantages": jagged(advantages),
            "loss_weights": jagged(weights),
            "old_log_probs": jagged(old_logprobs),
            "extra_fields": [{METADATA: packed(row)} for row in rows],
        }
    )


def test_the_numbers_are_over_the_tokens_that_weigh_something() -> None:
    from longhaul_trainer.verl.loss_inputs import loss_inputs

    first, second = loss_inputs(
        micro_batch(
            [beside(span(step=2, call=1), group_index=4, sample_index=5), beside(span())],
            advantages=[[9.0, -0.5, 0.25], [1.0]],
            weights=[[0.0, 0.125, 0.5], [0.0]],
            old_logprobs=[[-7.0, -1.0, -0.5], [-2.0]],
        )
    )

    assert (first.group_index, first.sample_index, first.row_index) == (4, 5, 0)
    assert (first.step_index, first.call_index) == (2, 1)
    assert first.num_tokens == 2
    assert (first.advantage_low, first.advantage_high) == (-0.5, 0.25)
    assert (first.weight_low, first.weight_high) == (0.125, 0.5)
    assert first.old_logprob_sum == -1.5
    assert (second.row_index, second.num_tokens, second.old_logprob_sum) == (1, 0, 0.0)
    assert second.advantage_low is second.advantage_high is None
    assert second.weight_low is second.weight_high is None


def test_each_call_of_a_merged_row_is_reported_by_itself() -> None:
    from longhaul_trainer.verl.loss_inputs import loss_inputs

    merged = beside(span(step=3, call=1, tokens=2), span(step=4, start=3))
    found = loss_inputs(
        micro_batch(
            [beside(span(), sample_index=1), merged],
            advantages=[[1.0], [0.5, 0.25, 9.0, -2.0]],
            weights=[[0.1], [0.5, 0.25, 0.0, 0.125]],
            old_logprobs=[[-4.0], [-1.0, -2.0, -9.0, -0.5]],
        )
    )

    assert [
        (one.sample_index, one.step_index, one.call_index, one.row_index) for one in found
    ] == [
        (1, 0, 0, 0), (0, 3, 1, 1), (0, 4, 0, 1)
    ]  # fmt: skip
    assert [one.num_tokens for one in found] == [1, 2, 1]
    assert [(one.advantage_low, one.advantage_high) for one in found] == [
        (1.0, 1.0), (0.25, 0.5), (-2.0, -2.0)
    ]  # fmt: skip
    assert [one.old_logprob_sum for one in found] == [-4.0, -3.0, -0.5]


def test_a_token_that_weighs_something_in_a_gap_is_counted_with_the_call_before_it() -> None:
    from longhaul_trainer.verl.loss_inputs import loss_inputs

    merged = beside(span(), span(step=1, start=2))
    first, second = loss_inputs(
        micro_batch(
            [merged],
            advantages=[[1.0, 0.0, 1.0]],
            weights=[[0.5, 0.5, 0.5]],
            old_logprobs=[[-1.0, -3.0, -1.0]],
        )
    )

    assert (first.num_tokens, first.old_logprob_sum) == (2, -4.0)  # the action has one
    assert (second.num_tokens, second.old_logprob_sum) == (1, -1.0)


def test_a_row_that_fills_up_is_not_reported_though_it_has_the_spans_of_a_merged_one() -> None:
    from longhaul_trainer.verl.loss_inputs import loss_inputs

    data = micro_batch(
        [beside(span(tokens=2), span(step=1, start=5))],
        advantages=[[0.0]],
        weights=[[0.0]],
        old_logprobs=[[-1.0]],
    )
    data["loss_mask"] = torch.nested.as_nested_tensor(
        [torch.zeros(1, dtype=torch.int64)], layout=torch.jagged
    )

    assert loss_inputs(data) == ()


def test_old_logprobs_are_added_up_in_double_precision() -> None:
    from longhaul_trainer.verl.loss_inputs import loss_inputs

    logprobs = [-16.0, *[-1e-6] * 1000]  # in float32 the small ones would be lost
    [row] = loss_inputs(
        micro_batch(
            [beside(span())],
            advantages=[[1.0] * 1001],
            weights=[[1.0] * 1001],
            old_logprobs=[logprobs],
        )
    )

    assert row.old_logprob_sum == pytest.approx(-16.001, abs=1e-9)


@contextmanager
def member_of_two(rank: int) -> Generator[None]:
    """A process group whose other member is not there: a report needs nothing of it."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that holds two episodes of three steps."""
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        episodes = [
            make_record(make_trajectory(sample_index=sample_index)) for sample_index in (0, 1)
        ]
        writer.write([run_started(), *episodes])
    return path


def report_one_row(
    loss: "ReportedLoss",
    row: RowMetadata,
    *,
    optimizer_step: int = 0,
    num_rows: int = 1,
    dp_group: "ProcessGroup | None" = None,
) -> None:
    """A micro-batch of one row through the loss; each of 2 ranks has `num_rows` of the update."""
    from longhaul_trainer.verl.loss_inputs import OPTIMIZER_STEP, TRAINING_STEP

    data = micro_batch(
        [row], advantages=[[1.0, 1.0]], weights=[[0.5, 0.5]], old_logprobs=[[-1.0, -2.0]]
    )
    sent = {
        TRAINING_STEP: 1,
        OPTIMIZER_STEP: optimizer_step,
        "dp_size": 2,
        "global_batch_size": 2 * num_rows,
    }
    for name, value in sent.items():
        data.set_non_tensor(name, value)
    logprobs = torch.nested.as_nested_tensor([torch.zeros(3)], layout=torch.jagged)
    loss({"log_probs": logprobs}, data, dp_group)


def reported_loss(writer: "RecordWriter") -> "ReportedLoss":
    from longhaul_trainer.verl.loss_inputs import MicroBatchReports, ReportedLoss

    return ReportedLoss(
        LossConfig(), MicroBatchReports(run_id="run", attempt=0, find_writer=lambda: writer)
    )


def stored(store: Path, columns: str) -> list[tuple[Any, ...]]:
    engine = read_only_engine(store)
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT {columns} FROM loss_inputs ORDER BY {columns}"))
        found = [tuple(row) for row in rows]
    engine.dispose()
    return found


def test_every_rank_reports_its_own_rows(store: Path) -> None:
    with WriterBehind(store) as writer:
        for rank in (0, 1):
            with member_of_two(rank):
                loss = reported_loss(writer)
                for step in range(rank + 1):
                    row = beside(span(step=step), sample_index=rank)
                    report_one_row(loss, row, num_rows=rank + 1)

    assert stored(store, "rank, micro_batch, episode_id, step_index") == [
        (0, 0, "run/0/train/1/0/0/0", 0),
        (1, 0, "run/0/train/1/0/1/0", 0),
        (1, 1, "run/0/train/1/0/1/0", 1),
    ]


def test_ranks_that_compute_the_same_rows_make_one_report(store: Path) -> None:
    """Tensor and sequence parallelism: each rank has data-parallel ranks of its own."""
    with WriterBehind(store) as writer:
        for rank in (0, 1):
            with member_of_two(rank):
                alone = torch.distributed.new_group([rank])
                assert isinstance(alone, torch.distributed.ProcessGroup)
                report_one_row(reported_loss(writer), beside(span()), dp_group=alone)

    assert stored(store, "rank, micro_batch, step_index") == [(0, 0, 0)]


def test_micro_batches_are_counted_within_an_optimizer_step(store: Path) -> None:
    with WriterBehind(store) as writer, member_of_two(0):
        loss = reported_loss(writer)
        for optimizer_step, num_rows in ((0, 2), (0, 2), (1, 3), (1, 3), (1, 3)):
            report_one_row(loss, beside(span()), optimizer_step=optimizer_step, num_rows=num_rows)

    assert stored(store, "optimizer_step_index, micro_batch") == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2)
    ]  # fmt: skip


def test_each_update_waits_for_its_reports_with_its_last_row() -> None:
    reports = Reports()
    with member_of_two(0):
        loss = reported_loss(reports)
        for optimizer_step, num_rows in ((0, 2), (0, 2), (1, 1), (2, 3), (2, 3), (2, 3)):
            report_one_row(loss, beside(span()), optimizer_step=optimizer_step, num_rows=num_rows)

    assert reports.settled == [2, 3, 6]


class Workers:
    """The learner's processes; they note which rows each update was given, as which."""

    _dispatch_info: dict[str, list[int]] = {"actor": [0]}  # noqa: RUF012  # as verl's has it

    def __init__(self) -> None:
        self.updates: list[tuple[int, int, list[str]]] = []

    def update_actor(self, rows: Any) -> dict[str, Any]:  # noqa: ANN401  # verl's batch
        from longhaul_trainer.verl.loss_inputs import OPTIMIZER_STEP, TRAINING_STEP

        info = rows.extra_info
        self.updates.append((info[TRAINING_STEP], info[OPTIMIZER_STEP], rows.keys))
        return {"metrics": {"trained_weight": [1.0], "clip_fraction": [0.0], "mfu": [0.0]}}


def test_an_update_says_which_of_the_training_step_it_is_though_others_had_no_episodes() -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.config import RunConfig
    from longhaul_trainer.verl.buffer import GroupBuffer
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    run = RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 3,
            "optimizer": {"optimizer_steps_per_training_step": 3},
        }
    )
    # All episodes of the first task failed.
    rows = {
        key: row
        for group in (1, 2)
        for sample_index in (0, 1)
        for key, row in rows_of(
            GroupName(7, group), sample_index, [{"reward": float(sample_index), "tokens": 1}]
        ).items()
    }
    workers = Workers()

    class Given(LonghaulTrainer):
        def __init__(self) -> None:
            self._run = run
            self._dynamic_sampling = None
            self.replay_buffer = GroupBuffer.__new__(GroupBuffer)
            self.replay_buffer.taken = tuple(GroupName(7, group) for group in range(3))
            self.global_steps = 7
            self.actor_rollout_wg = workers
            self.tokenizer = SimpleNamespace(eos_token_id=2)

        def _record_decisions(self, metrics: dict[str, object]) -> None: ...

        def _rows_of(self, keys: Sequence[str], partition: str = "train") -> dict[str, RowMetadata]:
            return rows

        def _fields_for_workers(self, key: str) -> list[str]:
            assert key in rows
            return ["responses"]

    batch = KVBatchMeta(keys=list(rows), tags=[{"seq_len": 52}] * 4, partition_id="train")
    trainer = Given()
    given = trainer._balance_batch(batch, {})
    trainer._step = trainer._current.credited()
    trainer._update_actor(given, {})

    assert workers.updates == [
        (7, 1, ["train-7-1_0_0", "train-7-1_1_0"]),
        (7, 2, ["train-7-2_0_0", "train-7-2_1_0"]),
    ]
