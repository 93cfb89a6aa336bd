"""One optimizer step of verl's real FSDP worker against the same loss in plain torch.

The worker runs in this process on a gloo group of one, with the tiny model in float32. Its
gradients are compared, parameter by parameter, with those of a computation that knows
nothing of padding, micro-batches, jagged tensors or FSDP: one row after the other through
transformers, one token after the other through the formula.
"""

import math
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from sqlalchemy import text
from transformers import AutoModelForCausalLM

from longhaul_core.errors import StoreError
from longhaul_core.store import Record, StoreWriter, read_only_engine
from longhaul_trainer.config.learning import LossConfig
from store_samples import make_record, make_trajectory, run_started
from trainer.verl.updates import (
    LENGTHS,
    LOSSES,
    MAX_ERROR,
    PADDING,
    TEMPERATURE,
    Gradients,
    Reports,
    Row,
    WriterBehind,
    columns_of,
    error,
    expected_gradients,
    expected_importance,
    make_rows,
    reply_logprobs,
    still_run,
    update,
)
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

NAMES = {
    "policy_loss",
    "clip_fraction",
    "policy_divergence",
    "ratio_mean",
    "trained_weight",
    "importance_weight_mean",
    "importance_truncated_fraction",
}
"""Metrics that micro-batches add up to."""
LONGEST = 41
"""Tokens of the longest row: with micro-batches of so many, an update has several."""


@pytest.fixture(scope="module")
def plain(model_folder: Path) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    model = AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.forward = model.forward  # keeps it: verl's fused kernels replace that of the class
    return model


PADDED: dict[str, object] = {"actor_rollout_ref.model.use_remove_padding": False}
LEARNERS: dict[str, tuple[Literal["cpu", "gpu"], dict[str, object]]] = {
    "CPU": ("cpu", {}),
    "GPU": ("gpu", {}),
    "GPU, padded": ("gpu", PADDED),
    "GPU, padded, logits": ("gpu", PADDED | {"actor_rollout_ref.model.use_fused_kernels": False}),
}
"""Whose engine and settings a learner has; on GPUs rows are packed unless verl is told to pad."""
SHARES = {
    "CPU": ("clipped", "cispo"),
    "GPU": ("with k2 and entropy", "one's own"),
    "GPU, padded": ("importance by token",),
    "GPU, padded, logits": ("gspo",),
}
"""Losses of which a learner is asked what is one for every loss and every learner."""
CPU_AND_GPU = pytest.mark.parametrize("learner", ["CPU", "GPU"], indirect=True)
"""For tests of what both ways of padding share."""


@pytest.fixture(scope="module", params=LEARNERS)
def learner(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def worker(model_folder: Path, plain: object, cpu_run: None, learner: str) -> Generator[Any]:
    """Verl's worker with the tiny model, as runs have it; its steps change no weight."""
    device, settings = LEARNERS[learner]
    run = still_run().model_copy(update={"verl": settings})
    with one_worker(run, model_folder, device=device) as made:
        yield made


@pytest.fixture
def losses(learner: str) -> list[LossConfig]:
    return [LOSSES[kind] for kind in SHARES[learner]]


@pytest.fixture(scope="module")
def rows(plain: Any) -> list[Row]:  # noqa: ANN401
    return make_rows(plain)


@pytest.fixture(scope="module")
def expected(plain: Any, rows: list[Row]) -> Callable[[LossConfig], Gradients]:  # noqa: ANN401
    """Gradients by the definition; the same loss is asked once."""
    known: dict[str, Gradients] = {}

    def of(loss: LossConfig) -> Gradients:
        if str(loss) not in known:
            known[str(loss)] = expected_gradients(plain, rows, loss)
        return known[str(loss)]

    return of


Updated = Callable[[LossConfig], tuple[Gradients, dict[str, Any]]]


@pytest.fixture(scope="module")
def whole(worker: Any, rows: list[Row]) -> Updated:  # noqa: ANN401
    """Gradients and metrics of an update of all rows at once; the same loss is asked once."""
    known: dict[str, tuple[Gradients, dict[str, Any]]] = {}

    def of(loss: LossConfig) -> tuple[Gradients, dict[str, Any]]:
        if str(loss) not in known:
            known[str(loss)] = update(worker, rows, loss)
        return known[str(loss)]

    return of


def test_a_gpu_s_learner_is_verl_s_own_on_packed_rows(
    model_folder: Path, plain: object, rows: list[Row], cpu_run: None
) -> None:
    """What the other tests of this file are about, if they are not of the CPU."""
    shapes: list[torch.Size] = []

    def look(module: object, args: object, given: dict[str, torch.Tensor]) -> None:
        assert given["attention_mask"] is None
        shapes.append(given["input_ids"].shape)

    with one_worker(still_run(), model_folder, device="gpu") as made:
        assert type(made.actor.engine).__name__ == "GpuPolicyEngine"
        made.actor.engine.module.register_forward_pre_hook(look, with_kwargs=True)
        update(made, rows, LOSSES["clipped"])

    assert shapes == [(1, sum(len(row.prompt + row.reply) for row in rows))]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_gradient_is_that_of_the_definition(
    expected: Callable[[LossConfig], Gradients],
    loss: LossConfig,
    whole: Updated,
) -> None:
    found, metrics = whole(loss)

    gradients = expected(loss)
    assert error(found, gradients) <= MAX_ERROR
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
    assert metrics["grad_norm"][0] == pytest.approx(norm, rel=MAX_ERROR)
    assert 0 < float(np.sum(metrics["clip_fraction"])) < 1


def test_a_wrong_weight_on_one_row_would_be_seen(
    worker: Any,  # noqa: ANN401
    expected: Callable[[LossConfig], Gradients],
    rows: list[Row],
) -> None:
    loss = LOSSES["clipped"]
    wrong = [replace(rows[0], weight=2 * rows[0].weight), *rows[1:]]

    found, _ = update(worker, wrong, loss)

    assert error(found, expected(loss)) > 100 * MAX_ERROR


def test_micro_batches_change_nothing_and_the_store_has_each_row_once(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    losses: list[LossConfig],
    whole: Updated,
    episodes_store: Path,
    tmp_path: Path,
) -> None:
    for number, loss in enumerate(losses):
        expected, whole_metrics = whole(loss)
        store = Path(shutil.copy(episodes_store, tmp_path / f"{number}.db"))
        with WriterBehind(store) as writer:
            split, metrics = update(worker, rows, loss, micro_batch_tokens=LONGEST, writer=writer)

        assert error(split, expected) <= MAX_ERROR, loss
        sums = [name for name in metrics if name in NAMES]
        assert len(sums) >= 5
        for name in sums:
            assert metrics[name] == pytest.approx(whole_metrics[name], rel=1e-3, abs=1e-6), loss
        assert consumed(store, REPORT) == [report_of(row) for row in rows]
        places = consumed(store, "optimizer_step_index, rank, micro_batch, row_index")
        assert {place[:2] for place in places} == {(0, 0)}
        assert len(set(places)) == len(rows)
        assert len({micro_batch for _, _, micro_batch, _ in places}) > 1


def test_an_update_in_parts_is_one_optimizer_step_with_the_same_gradient(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    losses: list[LossConfig],
    whole: Updated,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for loss in losses:
        expected, whole_metrics = whole(loss)
        reports = Reports()
        with monkeypatch.context() as patch:
            patch.setattr("longhaul_trainer.verl.parts.ROWS_AT_ONCE", 2)
            in_parts, metrics = update(worker, rows, loss, writer=reports)

        assert error(in_parts, expected) <= MAX_ERROR, loss
        assert len(metrics["grad_norm"]) == 1
        assert len(reports.records) == 3  # five rows in three parts, each one micro-batch
        assert reports.settled == [3]
        for name in NAMES & metrics.keys():
            assert metrics[name] == pytest.approx(whole_metrics[name], rel=1e-3, abs=1e-6), loss


def test_log_probabilities_in_parts_are_of_the_same_rows(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = read(worker, rows)["log_probs"].unbind()
    monkeypatch.setattr("longhaul_trainer.verl.parts.ROWS_AT_ONCE", 2)
    in_parts = read(worker, rows)["log_probs"].unbind()

    assert len(whole) == len(in_parts) == len(rows)
    for row, found, expected in zip(rows, in_parts, whole, strict=True):
        assert len(found) == len(row.prompt + row.reply)
        # After a row's last token nothing was sampled: verl asks there for the next row's first.
        torch.testing.assert_close(found[:-1], expected[:-1])


def test_the_entropy_of_each_token_is_that_of_the_definition(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    rows: list[Row],
) -> None:
    found = read(worker, rows)["entropy"].unbind()

    assert len(found) == len(rows)
    seen: list[float] = []
    for row, entropies in zip(rows, found, strict=True):
        _, expected = reply_logprobs(plain, row.prompt, row.reply)
        first = len(row.prompt) - 1
        of_reply = entropies[first : first + len(row.reply)]
        torch.testing.assert_close(of_reply, expected, rtol=1e-5, atol=1e-5)
        seen.extend(of_reply.tolist())
    assert max(seen) - min(seen) > 1e-4  # a random model is nearly indifferent


def read(worker: Any, rows: Sequence[Row]) -> Any:  # noqa: ANN401
    """What the pass for old log-probabilities says of every row's tokens.

    In two micro-batches or more.
    """
    from verl.utils import tensordict_utils as tu

    batch = tu.get_tensordict(
        columns_of([row.read for row in rows]),
        non_tensor_dict={
            "temperature": TEMPERATURE,
            "calculate_entropy": True,
            "compute_loss": False,
            "max_token_len_per_gpu": 60,
        },
    )
    return worker.actor.infer_batch(batch)


def test_padding_rows_change_nothing(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    losses: list[LossConfig],
    whole: Updated,
) -> None:
    for loss in losses:
        padded, _ = update(worker, [*rows, PADDING, PADDING], loss, micro_batch_tokens=140)

        assert error(padded, whole(loss)[0]) <= MAX_ERROR, loss


@CPU_AND_GPU
@pytest.mark.parametrize("kind", ["importance by token", "gspo", "cispo"])
def test_rows_without_an_advantage_may_be_left_out(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    kind: str,
) -> None:
    """What the trainer does to save work: the weights were shared out before."""
    silent = [replace(row, advantage=0.0) for row in rows[2:]]
    loss = LOSSES[kind]

    with_silent, metrics = update(worker, [*rows[:2], *silent], loss)
    without, fewer = update(worker, rows[:2], loss)

    assert error(without, with_silent) <= MAX_ERROR
    assert float(np.sum(fewer["clip_fraction"])) > 0
    assert fewer["clip_fraction"] == pytest.approx(metrics["clip_fraction"], abs=1e-6)


def test_the_metrics_are_those_of_the_definition(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    rows: list[Row],
) -> None:
    from longhaul_trainer.verl.loss import weighted_means

    loss = LOSSES["importance by token"]
    some = rows[:3]  # as if the others had been left out: 12 of 19 tokens

    _, sums = update(worker, some, loss)
    told = {f"actor/{name}": float(np.sum(sums[name])) for name in sums}
    found = weighted_means(told, whole_weight=1.0)

    tokens = [(row, place) for row in some for place in range(len(row.reply))]
    gaps: list[float] = []
    with torch.no_grad():
        for row in some:
            logprobs = reply_logprobs(plain, row.prompt, row.reply)[0].tolist()
            gaps += [now - old for now, old in zip(logprobs, row.old_logprobs, strict=True)]
    weights = [expected_importance(row, place, loss) for row, place in tokens]
    assert found["actor/trained_weight"] == pytest.approx(12 / 19, rel=1e-5)
    expected = {
        "ratio_mean": np.mean(np.exp(gaps)),
        "policy_divergence": -np.mean(gaps),
        "importance_weight_mean": np.mean(weights),
        "importance_truncated_fraction": np.mean([weight == 1.5 for weight in weights]),
    }
    assert {name: found[f"actor/{name}"] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert 0 < expected["importance_truncated_fraction"] < 1


def test_means_and_shares_are_of_the_tokens_where_weights_do_not_add_up_to_one() -> None:
    """`fixed_token`: 100 tokens of 1/1000 each, 60 of them in a row, 30 of those clipped."""
    from longhaul_trainer.verl.loss import weighted_means

    told = {"trained_weight": 0.06, "clip_fraction": 0.03, "reference_kl": 0.06 * 0.5}
    found = weighted_means(
        {f"actor/{name}": value for name, value in told.items()}, whole_weight=0.1
    )

    assert found == pytest.approx(
        {"actor/trained_weight": 0.06, "actor/clip_fraction": 0.3, "actor/reference_kl": 0.5}
    )


# What the loss read, in the store


@pytest.fixture(scope="module")
def episodes_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds the two episodes whose steps the rows are."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    with StoreWriter(path) as writer:
        episodes = [
            make_record(make_trajectory(sample_index=sample_index, rewards=(0.0,) * number))
            for sample_index, number in enumerate(LENGTHS)
        ]
        writer.write([run_started(), *episodes])
    return path


@pytest.fixture
def store(episodes_store: Path, tmp_path: Path) -> Path:
    """One of each test's own."""
    return Path(shutil.copy(episodes_store, tmp_path / "store.db"))


def consumed(store: Path, columns: str) -> list[tuple[Any, ...]]:
    engine = read_only_engine(store)
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                f"SELECT {columns} FROM loss_inputs "
                "ORDER BY episode_id, step_index, optimizer_step_index, micro_batch, row_index"
            )
        )
        found = [tuple(row) for row in rows]
    engine.dispose()
    return found


def report_of(row: Row) -> tuple[Any, ...]:
    """What the store must say of a row that was read once; verl's tensors are float32."""
    advantage, weight = float(np.float32(row.advantage)), float(np.float32(row.weight))
    old = sum(float(np.float32(logprob)) for logprob in row.old_logprobs)
    return (
        f"run/0/train/1/0/{row.sample_index}/0",
        row.step,
        len(row.reply),
        *(advantage, advantage, weight, weight),
        pytest.approx(old, abs=1e-12),
    )


REPORT = (
    "episode_id, step_index, num_tokens, "
    "advantage_low, advantage_high, weight_low, weight_high, old_logprob_sum"
)


@CPU_AND_GPU
def test_a_row_that_is_given_twice_is_in_the_store_twice(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    with WriterBehind(store) as writer:
        update(worker, [*rows, rows[2]], LOSSES["clipped"], writer=writer)

    twice = [*rows[:3], *rows[2:]]
    assert consumed(store, REPORT) == [report_of(row) for row in twice]


@CPU_AND_GPU
def test_what_the_trainer_left_out_and_padding_are_not_in_the_store(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    with WriterBehind(store) as writer:
        update(worker, [PADDING, *rows[1:4], PADDING], LOSSES["clipped"], writer=writer)

    assert consumed(store, REPORT) == [report_of(row) for row in rows[1:4]]


@CPU_AND_GPU
def test_activation_checkpointing_reports_a_row_once(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    module = worker.actor.engine.module
    module.gradient_checkpointing_enable()
    forwards: list[object] = []

    def count(*given: object) -> None:
        forwards.append(given)

    hook = module.model.layers[0].register_forward_pre_hook(count)
    try:
        with WriterBehind(store) as writer:
            update(worker, rows, LOSSES["clipped"], writer=writer)
    finally:
        hook.remove()
        module.gradient_checkpointing_disable()

    assert len(forwards) == 2  # again in the backward pass
    assert consumed(store, REPORT) == [report_of(row) for row in rows]


@CPU_AND_GPU
@pytest.mark.parametrize("place", [0, 4], ids=["first", "last"])
def test_an_error_of_the_store_ends_the_update_before_the_optimizer_moves(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
    place: int,
) -> None:
    """Whichever micro-batch the store refuses."""
    given = [*rows]
    given[place] = replace(rows[place], sample_index=1, step=3)
    moved: list[object] = []

    def move(*of: object) -> None:
        moved.append(of)

    hook = worker.actor.engine.optimizer.register_step_pre_hook(move)
    try:
        with (
            WriterBehind(store) as writer,
            pytest.raises(
                StoreError,
                match=r"call 0 of step 3, but episode .* has no such call in its 3 steps",
            ),
        ):
            update(worker, given, LOSSES["clipped"], micro_batch_tokens=LONGEST, writer=writer)
    finally:
        hook.remove()

    assert moved == []


class HeldBack(WriterBehind):
    """Its store takes nothing until somebody waits for it."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self._is_waited_for = threading.Event()
        self.settled_after: list[int] = []
        """How many micro-batches had been reported each time that somebody waited."""

    def write(self, records: Iterable[Record]) -> None:
        assert self._is_waited_for.wait(60), "a micro-batch waits for the store"
        super().write(records)

    def settle(self) -> None:
        self.settled_after.append(len(self._pending))
        self._is_waited_for.set()
        super().settle()


@CPU_AND_GPU
def test_the_store_is_waited_for_once_and_before_the_optimizer_moves(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    there: list[list[tuple[Any, ...]]] = []

    def look(*_: object) -> None:
        there.append(consumed(store, REPORT))

    hook = worker.actor.engine.optimizer.register_step_pre_hook(look)
    try:
        with HeldBack(store) as writer:
            update(worker, rows, LOSSES["clipped"], micro_batch_tokens=LONGEST, writer=writer)
    finally:
        hook.remove()

    assert there == [[report_of(row) for row in rows]]
    (num_micro_batches,) = writer.settled_after
    assert num_micro_batches > 2


@CPU_AND_GPU
def test_what_an_update_read_is_in_the_store_though_its_gradient_is_not_finite(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    """Then verl takes no step, and what it would have been made of was read all the same."""
    endless = [replace(rows[0], reference_logprobs=(math.inf,) * len(rows[0].reply)), *rows[1:]]

    with HeldBack(store) as writer:
        found, metrics = update(
            worker,
            endless,
            LOSSES["with k2 and entropy"],
            writer=writer,
            micro_batch_tokens=LONGEST,
        )

    assert found == {}
    assert not math.isfinite(metrics["grad_norm"][0])
    assert consumed(store, REPORT) == [report_of(row) for row in rows]
