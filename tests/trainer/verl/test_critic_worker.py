"""Updates of verl's real FSDP worker of the critic against the same loss in plain torch.

The worker runs in this process on a gloo group of one, with the tiny model in float32. Its
gradients are compared with those of a computation that knows nothing of padding, micro-batches
or FSDP: one row after the other through transformers, one value after the other.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import text
from transformers import AutoModelForTokenClassification

from longhaul_core.store import read_only_engine
from longhaul_trainer.config import CriticConfig, RunConfig
from longhaul_trainer.training.step_metadata import METADATA, RowMetadata, packed
from row_metadata import beside, span
from store_samples import make_record, make_trajectory, run_started
from trainer.verl.updates import Gradients, Reports, WriterBehind, error
from variation import assert_several
from verl_process import IMPORTS_VERL, one_critic

pytestmark = IMPORTS_VERL

MAX_ERROR = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as the trainer hands it to the critic; each number is of a token of the response."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Start and stop, in the response, of each step's action."""
    old_values: tuple[float, ...]
    targets: tuple[float, ...]
    weights: tuple[float, ...]
    sample_index: int
    is_padding: bool = False

    @property
    def metadata(self) -> RowMetadata:
        """What travels beside it."""
        calls = (
            span(
                step=step, start=start, tokens=stop - start, prompt_tokens=len(self.prompt) + start
            )
            for step, (start, stop) in enumerate(self.spans)
        )
        return beside(*calls, sample_index=self.sample_index)


def make_rows() -> list[Row]:
    """Episodes of one row each: a step; two merged steps with a gap; a step by tokens."""
    draw = torch.Generator().manual_seed(1)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, 4096, (number,), generator=draw).tolist())

    def one(
        sample_index: int, prompt: int, spans: Sequence[tuple[int, int]], counted: set[int]
    ) -> Row:
        length = spans[-1][1]
        shift = torch.randn(length, generator=draw).tolist()
        return Row(
            prompt=tokens(prompt),
            response=tokens(length),
            spans=tuple(spans),
            old_values=tuple(0.1 * value for value in shift),
            targets=tuple(1.0 + value for value in reversed(shift)),
            weights=tuple(
                0.2 * (1 + sample_index) if place in counted else 0.0 for place in range(length)
            ),
            sample_index=sample_index,
        )

    return [
        one(0, 9, [(0, 3)], {0}),
        one(1, 30, [(0, 4), (9, 11)], {0, 9}),
        one(2, 17, [(0, 5)], {0, 1, 2, 3, 4}),
    ]


PADDING = Row(
    prompt=(2,) * 127,
    response=(2,),
    spans=((0, 1),),
    old_values=(0.0,),
    targets=(0.0,),
    weights=(0.0,),
    sample_index=0,
    is_padding=True,
)


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def worker(model_folder: Path, cpu_run: None, request: pytest.FixtureRequest) -> Generator[Any]:
    """The critic as runs have it, with a head that is not zero; its steps change no weight."""
    run = RunConfig.model_validate(
        {
            "num_training_steps": 8,
            "tasks_per_training_step": 2,
            "model": {"engine_dtype": "float32"},
            "algorithm": {"name": "gae"},
            "critic": {"learning_rate": 1e-30},
            "optimizer": {"max_gradient_norm": 1e9},
        }
    )
    with one_critic(run, model_folder, device=request.param) as made:
        head = dict(made.engine.module.named_parameters())["score.weight"]
        assert not head.full_tensor().any()  # nothing is expected before anything is learnt
        torch.nn.init.normal_(head.to_local(), std=0.5, generator=torch.Generator().manual_seed(3))
        yield made


@pytest.fixture(scope="module")
def plain(worker: Any, model_folder: Path) -> Any:  # noqa: ANN401  transformers is untyped
    model = AutoModelForTokenClassification.from_pretrained(
        model_folder, num_labels=1, dtype=torch.float32, attn_implementation="sdpa"
    )
    weights = {name: p.full_tensor() for name, p in worker.engine.module.named_parameters()}
    model.load_state_dict(weights, strict=False)
    return model


def batch_of(
    rows: Sequence[Row],
    *,
    micro_batch_tokens: int = 4096,
    columns: Mapping[str, Any] | None = None,
) -> Any:  # noqa: ANN401
    """What verl hands to the worker; `columns` take the place of those of text."""
    from verl.utils import tensordict_utils as tu

    from longhaul_trainer.verl.loss_inputs import OPTIMIZER_STEP, TRAINING_STEP

    def jagged(column: Callable[[Row], Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        tensors = [torch.tensor(column(row), dtype=dtype) for row in rows]
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    def mask(row: Row) -> list[int]:
        sampled = {p for start, stop in row.spans for p in range(start, stop)}
        return [int(place in sampled and not row.is_padding) for place in range(len(row.response))]

    return tu.get_tensordict(
        {
            "input_ids": jagged(lambda row: [*row.prompt, *row.response], torch.int64),
            "position_ids": jagged(lambda row: range(len(row.prompt + row.response)), torch.int64),
            "prompts": jagged(lambda row: row.prompt, torch.int64),
            "responses": jagged(lambda row: row.response, torch.int64),
            "response_mask": jagged(mask, torch.int64),
            "loss_mask": jagged(mask, torch.int64),
            "values": jagged(lambda row: row.old_values, torch.float32),
            "returns": jagged(lambda row: row.targets, torch.float32),
            "value_weights": jagged(lambda row: row.weights, torch.float32),
            "extra_fields": [
                {METADATA: packed(row.metadata), "reward_extra_info": {}} for row in rows
            ],
        }
        | dict(columns or {}),
        non_tensor_dict={
            "global_batch_size": len(rows),
            "mini_batch_size": len(rows),
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": 0.7,
            "max_token_len_per_gpu": micro_batch_tokens,
            TRAINING_STEP: 1,
            OPTIMIZER_STEP: 0,
        },
    )


def update(
    worker: Any,  # noqa: ANN401
    rows: Sequence[Row],
    settings: CriticConfig,
    *,
    micro_batch_tokens: int = 4096,
    writer: Any = None,  # noqa: ANN401
    columns: Mapping[str, Any] | None = None,
) -> tuple[Gradients, dict[str, Any]]:
    """Gradients just before the optimizer's step, and the metrics of the update."""
    from verl.utils import tensordict_utils as tu

    from longhaul_trainer.verl.critic import ReportedValueLoss
    from longhaul_trainer.verl.loss_inputs import MicroBatchReports

    found: Gradients = {}

    def keep(*_: object) -> None:
        for name, parameter in worker.engine.module.named_parameters():
            found[name] = parameter.grad.full_tensor().clone()

    worker.set_loss_fn(
        ReportedValueLoss(
            settings,
            MicroBatchReports(run_id="run", attempt=0, find_writer=lambda: writer or Reports()),
        )
    )
    hook = worker.engine.optimizer.register_step_pre_hook(keep)
    try:
        output = worker.train_mini_batch(
            batch_of(rows, micro_batch_tokens=micro_batch_tokens, columns=columns)
        )
    finally:
        hook.remove()
    return found, tu.get(output, "metrics")


def values_of(plain: Any, row: Row) -> torch.Tensor:  # noqa: ANN401
    """The value before each token of the response."""
    values = plain(torch.tensor([[*row.prompt, *row.response]])).logits[0, :, 0]
    return values[len(row.prompt) - 1 : -1]


def expected(plain: Any, rows: Sequence[Row], settings: CriticConfig) -> tuple[Gradients, float]:  # noqa: ANN401
    """Gradient and loss by the definition, value by value."""
    plain.zero_grad()
    total = 0.0
    for row in rows:
        loss = torch.zeros(())
        for place, value in enumerate(values_of(plain, row)):
            if not row.weights[place]:
                continue
            old, target = row.old_values[place], row.targets[place]
            errors = [(value - target) ** 2]
            if settings.clip_range is not None:
                near = value.clamp(old - settings.clip_range, old + settings.clip_range)
                errors.append((near - target) ** 2)
            loss = loss + row.weights[place] * max(errors) / 2
        loss.backward()
        total += float(loss.detach())
    return {name: p.grad.clone() for name, p in plain.named_parameters()}, total


def test_values_and_an_update_in_parts_are_those_of_all_rows(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from verl.utils import tensordict_utils as tu

    rows = make_rows()
    gradients, loss = expected(plain, rows, CriticConfig())
    monkeypatch.setattr("longhaul_trainer.verl.parts.ROWS_AT_ONCE", 2)

    found, metrics = update(worker, rows, CriticConfig())
    batch = batch_of(rows, micro_batch_tokens=60)
    tu.assign_non_tensor(batch, compute_loss=False)
    values = worker.infer_batch(batch)["values"].unbind()

    assert error(found, gradients) <= MAX_ERROR
    assert sum(metrics["value_loss"]) == pytest.approx(loss, rel=1e-4)
    assert len(metrics["grad_norm"]) == 1
    for row, row_values in zip(rows, values, strict=True):
        of_response = row_values[len(row.prompt) - 1 : -1]
        torch.testing.assert_close(of_response, values_of(plain, row), rtol=1e-3, atol=1e-4)


SETTINGS = {"free": CriticConfig(), "clipped": CriticConfig(clip_range=0.3)}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("micro_batch_tokens", [4096, 150])
def test_the_gradient_is_that_of_the_definition(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    settings: CriticConfig,
    micro_batch_tokens: int,
) -> None:
    rows = make_rows()

    found, metrics = update(
        worker, [*rows, PADDING], settings, micro_batch_tokens=micro_batch_tokens
    )

    gradients, loss = expected(plain, rows, settings)
    assert error(found, gradients) <= MAX_ERROR
    assert sum(metrics["value_loss"]) == pytest.approx(loss, rel=1e-4)
    clipped = sum(metrics["value_clip_fraction"])
    assert clipped == 0 if settings.clip_range is None else clipped > 0


def test_a_value_one_token_late_would_be_seen(worker: Any, plain: Any) -> None:  # noqa: ANN401
    rows = make_rows()
    late = [replace(row, weights=(0.0, *row.weights[:-1])) for row in rows]

    found, _ = update(worker, late, SETTINGS["free"])

    assert error(found, expected(plain, rows, SETTINGS["free"])[0]) > 100 * MAX_ERROR


def test_values_are_those_before_each_token(worker: Any, plain: Any) -> None:  # noqa: ANN401
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    rows = make_rows()
    batch = batch_of(rows)
    tu.assign_non_tensor(batch, compute_loss=False)

    output = worker.infer_batch(batch)

    found = response_from_nested(output["values"], batch["response_mask"]).unbind(0)
    for row, values in zip(rows, found, strict=True):
        assert_several(values.tolist(), at_least=len(row.response))
        with torch.no_grad():
            torch.testing.assert_close(values, values_of(plain, row), rtol=1e-4, atol=1e-4)


def test_what_the_loss_read_is_in_the_store(worker: Any, tmp_path: Path) -> None:  # noqa: ANN401
    rows = make_rows()
    store = tmp_path / "store.db"
    with WriterBehind(store) as writer:
        writer.write(
            [
                run_started(),
                *(
                    make_record(
                        make_trajectory(
                            sample_index=row.sample_index, rewards=(0.0,) * len(row.spans)
                        )
                    )
                    for row in rows
                ),
            ]
        )
        update(worker, [*rows, PADDING], SETTINGS["free"], writer=writer, micro_batch_tokens=150)

    engine = read_only_engine(store)
    with engine.connect() as connection:
        found = [
            tuple(row)
            for row in connection.execute(
                text(
                    "SELECT episode_id, step_index, num_tokens, first_token, target_low, "
                    "target_high, weight_low, weight_high FROM critic_loss_inputs ORDER BY 1, 2"
                )
            )
        ]
    engine.dispose()

    assert [row[:4] for row in found] == [
        ("run/0/train/1/0/0/0", 0, 1, 0),
        ("run/0/train/1/0/1/0", 0, 1, 0),
        ("run/0/train/1/0/1/0", 1, 1, 0),
        ("run/0/train/1/0/2/0", 0, 5, 0),
    ]
    assert found[2][4:] == pytest.approx((rows[1].targets[9],) * 2 + (0.4,) * 2)
    assert found[3][4:] == pytest.approx((min(rows[2].targets), max(rows[2].targets), 0.6, 0.6))


def test_a_value_that_is_learnt_between_two_actions_is_told_of_the_one_before() -> None:
    from longhaul_trainer.verl.critic import critic_loss_inputs

    merged = make_rows()[1]
    wrong = [0.4 if place == 6 else weight for place, weight in enumerate(merged.weights)]

    first, second = critic_loss_inputs(batch_of([replace(merged, weights=tuple(wrong))]))

    assert (first.step_index, first.num_tokens, first.first_token) == (0, 2, 0)
    assert (second.step_index, second.num_tokens, second.first_token) == (1, 1, 0)


def test_a_checkpoint_brings_back_weights_and_optimizer(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401  taken from the weights before they move
    tmp_path: Path,
) -> None:
    del plain
    rows = make_rows()
    head = dict(worker.engine.module.named_parameters())["score.weight"]

    def learn() -> torch.Tensor:
        update(worker, rows, SETTINGS["free"])
        return head.full_tensor().clone()

    # From here on its steps do change the weights: this test is the last.
    worker.engine.lr_scheduler.base_lrs = [1e-2]
    worker.engine.optimizer.param_groups[0]["lr"] = 1e-2
    first = learn()
    worker.save_checkpoint(str(tmp_path / "critic"), None, 1)
    second = learn()
    worker.load_checkpoint(str(tmp_path / "critic"))
    back = head.full_tensor().clone()
    again = learn()

    assert not torch.equal(first, second)
    assert torch.equal(back, first)
    # the same step again: Adam's moments and count are those of the checkpoint
    torch.testing.assert_close(again, second, rtol=0, atol=1e-9)
    assert math.isfinite(float(again.sum()))
