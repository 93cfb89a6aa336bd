"""One optimizer step of verl's real FSDP worker against the same loss in plain torch.

The worker runs in this process on a gloo group of one, with the tiny model in float32. Its
gradients are compared, parameter by parameter, with those of a computation that knows
nothing of padding, micro-batches, jagged tensors or FSDP: one row after the other through
transformers, one token after the other through the formula.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sqlalchemy import text
from transformers import AutoModelForCausalLM

from longhaul_core.errors import StoreError
from longhaul_core.store import Record, StoreWriter, read_only_engine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.notes import NOTE, RowNote
from store_samples import make_record, make_trajectory, run_started
from verl_process import one_worker

if TYPE_CHECKING:
    from longhaul_trainer.verl.consumption import RecordWriter

pytestmark = [
    pytest.mark.usefixtures("cpu_run"),
    pytest.mark.slow,  # importing verl takes about ten seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of verl's and Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch.distributed, used by verl
    pytest.mark.filterwarnings("ignore::UserWarning"),  # hydra, transformers and nested tensors
]

TEMPERATURE = 0.7
MAX_ERROR = 1e-4
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
LENGTHS = [2, 3]
"""Steps of each episode: the rows are all the steps of two episodes of one group."""
Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of an episode, as the trainer hands it to the worker."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    behavior_logprobs: tuple[float, ...]
    reference_logprobs: tuple[float, ...]
    advantage: float
    weight: float
    position: int
    step: int
    is_padding: bool = False

    @property
    def note(self) -> RowNote:
        """What the row was given when its episode was played."""
        return RowNote(
            task_id="train/00000",
            group_index=0,
            position=self.position,
            retry=0,
            horizon=50,
            step=self.step,
            num_steps=LENGTHS[self.position],
            reward=0.0,
            action_valid=True,
            anchor="",
            success=False,
            episode_return=0.0,
            prompt_tokens=len(self.prompt),
            action_tokens=len(self.reply),
        )


class Reports:
    """Takes records as the run's recorder does, and keeps them."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        self.records.extend(records)


PADDING = Row(
    prompt=(2,) * 127,
    reply=(2,),
    old_logprobs=(0.0,),
    behavior_logprobs=(0.0,),
    reference_logprobs=(0.0,),
    advantage=0.0,
    weight=0.0,
    position=0,
    step=0,
    is_padding=True,
)
"""As verl makes it: a copy of a real row in all but its tokens, its step's note included."""

LOSSES = {
    "clipped": LossConfig(),
    "with k2 and entropy": LossConfig(
        kl_coefficient=0.3, kl_kind="k2", entropy_coefficient=0.05, clip_high=0.28
    ),
    "importance by token": LossConfig(importance_sampling="token", importance_cap=1.5),
    "gspo": LossConfig(kind="gspo", clip_low=0.1, clip_high=0.25, importance_sampling="sequence"),
    "cispo": LossConfig(kind="cispo", clip_low=0.3, clip_high=0.3),
}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def plain(model_folder: Path) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="sdpa"
    )


@pytest.fixture(scope="module")
def worker(model_folder: Path, cpu_run: None) -> Generator[Any]:
    """Verl's worker with the tiny model, as a CPU run has it; its steps change no weight."""
    run = RunConfig.model_validate(
        {
            "num_training_steps": 8,
            "tasks_per_training_step": 2,
            "model": {"engine_dtype": "float32"},
            "optimizer": {"learning_rate": 1e-30, "max_gradient_norm": 1e9},
        }
    )
    with one_worker(run, model_folder) as made:
        yield made


@pytest.fixture(scope="module")
def rows(plain: Any) -> list[Row]:  # noqa: ANN401
    """Rows of different lengths; some ratios inside the clip range, some far outside it."""
    draw = torch.Generator().manual_seed(0)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, 4096, (number,), generator=draw).tolist())

    drawn: list[Row] = []
    lengths = [(9, 3), (40, 1), (17, 8), (5, 5), (23, 2)]
    shifts = [0.05, -0.6, 0.7, -0.1, 1.4, -0.02, 0.45, 0.0]
    advantages = [1.5, -0.8, 0.6, -2.0, 0.3]
    num_tokens = sum(reply for _, reply in lengths)
    steps = [(position, step) for position, number in enumerate(LENGTHS) for step in range(number)]
    for place, (prompt_length, reply_length) in enumerate(lengths):
        position, step = steps[place]
        prompt, reply = tokens(prompt_length), tokens(reply_length)
        with torch.no_grad():
            now = reply_logprobs(plain, prompt, reply)[0].tolist()
        drawn.append(
            Row(
                prompt=prompt,
                reply=reply,
                old_logprobs=tuple(
                    p - shifts[(i + place) % len(shifts)] for i, p in enumerate(now)
                ),
                behavior_logprobs=tuple(
                    p - shifts[(i + place) % len(shifts)] - 0.3 * (i + place - 4)
                    for i, p in enumerate(now)
                ),
                reference_logprobs=tuple(p + 0.3 * (i - 1) for i, p in enumerate(now)),
                advantage=advantages[place],
                weight=1.0 / num_tokens,
                position=position,
                step=step,
            )
        )
    return drawn


def reply_logprobs(
    model: Any,  # noqa: ANN401
    prompt: Sequence[int],
    reply: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token of the reply, and the entropy where it was chosen."""
    logits = model(torch.tensor([[*prompt, *reply]])).logits[0].float() / TEMPERATURE
    choices = logits[len(prompt) - 1 : -1].log_softmax(-1)
    chosen = choices.gather(-1, torch.tensor([reply]).T).squeeze(-1)
    return chosen, -(choices.exp() * choices).sum(-1)


def expected_gradients(model: Any, rows: Sequence[Row], loss: LossConfig) -> Gradients:  # noqa: ANN401
    """By the definition, token by token."""
    model.zero_grad()
    for row in rows:
        logprobs, entropies = reply_logprobs(model, row.prompt, row.reply)
        total = torch.zeros(())
        for place, (logprob, entropy) in enumerate(zip(logprobs, entropies, strict=True)):
            token_loss = expected_policy_loss(row, place, logprobs, loss)
            token_loss = expected_importance(row, place, loss) * token_loss
            token_loss = token_loss - loss.entropy_coefficient * entropy
            if loss.kl_coefficient:
                distance = row.reference_logprobs[place] - logprob
                token_loss = token_loss + loss.kl_coefficient * distance**2 / 2
            total = total + row.weight * token_loss
        total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def expected_policy_loss(
    row: Row, place: int, logprobs: torch.Tensor, loss: LossConfig
) -> torch.Tensor:
    """The policy loss of the token at `place`; GSPO's is the reply's, shared by its tokens."""
    ratio = torch.exp(logprobs[place] - row.old_logprobs[place])
    if loss.kind == "gspo":
        ratio = torch.exp((logprobs - torch.tensor(row.old_logprobs)).mean())
    clipped = ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high)
    if loss.kind == "cispo":
        return -float(clipped) * row.advantage * logprobs[place]
    surrogate = torch.minimum(ratio * row.advantage, clipped * row.advantage)
    if loss.kind == "ppo" and row.advantage < 0:
        assert loss.dual_clip is not None
        surrogate = surrogate.clamp(min=loss.dual_clip * row.advantage)
    return -surrogate


def expected_importance(row: Row, place: int, loss: LossConfig) -> float:
    """How much likelier the learner found what was sampled, up to the cap."""
    gaps = [o - b for o, b in zip(row.old_logprobs, row.behavior_logprobs, strict=True)]
    if loss.importance_sampling == "none":
        return 1.0
    gap = gaps[place] if loss.importance_sampling == "token" else sum(gaps)
    return min(math.exp(gap), loss.importance_cap)


def update(
    worker: Any,  # noqa: ANN401
    rows: Sequence[Row],
    loss: LossConfig,
    *,
    micro_batch_tokens: int = 4096,
    writer: "RecordWriter | None" = None,
) -> tuple[Gradients, dict[str, Any]]:
    """Gradients just before the optimizer's step, and the metrics of `update_actor`."""
    from verl.utils import tensordict_utils as tu

    from longhaul_trainer.verl.consumption import OPTIMIZER_STEP, TRAINING_STEP, ReportedLoss

    def jagged(column: Callable[[Row], Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        tensors = [torch.tensor(column(row), dtype=dtype) for row in rows]
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    def own_tokens(row: Row) -> list[int]:
        return [int(not row.is_padding)] * len(row.reply)

    batch = tu.get_tensordict(
        {
            "input_ids": jagged(lambda row: [*row.prompt, *row.reply], torch.int64),
            "position_ids": jagged(lambda row: range(len(row.prompt + row.reply)), torch.int64),
            "prompts": jagged(lambda row: row.prompt, torch.int64),
            "responses": jagged(lambda row: row.reply, torch.int64),
            "response_mask": jagged(own_tokens, torch.int64),
            "loss_mask": jagged(own_tokens, torch.int64),
            "old_log_probs": jagged(lambda row: row.old_logprobs, torch.float32),
            "rollout_log_probs": jagged(lambda row: row.behavior_logprobs, torch.float32),
            "ref_log_prob": jagged(lambda row: row.reference_logprobs, torch.float32),
            "advantages": jagged(lambda row: [row.advantage] * len(row.reply), torch.float32),
            "loss_weights": jagged(lambda row: [row.weight] * len(row.reply), torch.float32),
            "extra_fields": [{NOTE: row.note._asdict(), "reward_extra_info": {}} for row in rows],
        },
        non_tensor_dict={
            "calculate_entropy": loss.entropy_coefficient > 0,
            "distillation_use_topk": False,
            "distillation_only": False,
            "global_batch_size": len(rows),
            "mini_batch_size": len(rows),
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": TEMPERATURE,
            "max_token_len_per_gpu": micro_batch_tokens,
            TRAINING_STEP: 1,
            OPTIMIZER_STEP: 0,
        },
    )
    found: Gradients = {}
    engine = worker.actor.engine

    def keep(*_: object) -> None:
        for name, parameter in engine.module.named_parameters():
            found[name] = parameter.grad.full_tensor().clone()

    worker.set_loss_fn(
        ReportedLoss(loss, run_id="run", attempt=0, find_writer=lambda: writer or Reports())
    )
    hook = engine.optimizer.register_step_pre_hook(keep)
    try:
        output = worker.update_actor(batch)
    finally:
        hook.remove()
    return found, tu.get(output, "metrics")


def error(found: Gradients, expected: Gradients) -> float:
    """Norm of the difference over the norm, all parameters taken as one vector."""
    assert found.keys() == expected.keys()
    difference = math.sqrt(
        sum((found[name] - expected[name]).square().sum().item() for name in expected)
    )
    return difference / math.sqrt(sum(g.square().sum().item() for g in expected.values()))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_gradient_is_that_of_the_definition(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    rows: list[Row],
    loss: LossConfig,
) -> None:
    found, metrics = update(worker, rows, loss)

    expected = expected_gradients(plain, rows, loss)
    assert error(found, expected) <= MAX_ERROR
    norm = math.sqrt(sum(g.square().sum().item() for g in expected.values()))
    assert metrics["grad_norm"][0] == pytest.approx(norm, rel=MAX_ERROR)
    assert 0 < float(np.sum(metrics["clip_fraction"])) < 1


def test_a_wrong_weight_on_one_row_would_be_seen(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    rows: list[Row],
) -> None:
    loss = LOSSES["clipped"]
    wrong = [replace(rows[0], weight=2 * rows[0].weight), *rows[1:]]

    found, _ = update(worker, wrong, loss)

    assert error(found, expected_gradients(plain, rows, loss)) > 100 * MAX_ERROR


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_micro_batches_change_nothing(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    loss: LossConfig,
) -> None:
    whole, whole_metrics = update(worker, rows, loss)
    longest = max(len(row.prompt + row.reply) for row in rows)

    split, metrics = update(worker, rows, loss, micro_batch_tokens=longest)

    assert error(split, whole) <= MAX_ERROR
    sums = [name for name in metrics if name in NAMES]
    assert len(sums) >= 5
    for name in sums:
        assert metrics[name] == pytest.approx(whole_metrics[name], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_padding_rows_change_nothing(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    loss: LossConfig,
) -> None:
    whole, _ = update(worker, rows, loss)

    padded, _ = update(worker, [*rows, PADDING, PADDING], loss, micro_batch_tokens=140)

    assert error(padded, whole) <= MAX_ERROR


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
    found = weighted_means({f"actor/{name}": float(np.sum(sums[name])) for name in sums})

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


# What the loss read, in the store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that holds the two episodes whose steps the rows are."""
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        episodes = [
            make_record(make_trajectory(position=position, rewards=(0.0,) * number))
            for position, number in enumerate(LENGTHS)
        ]
        writer.write([run_started(), *episodes])
    return path


def consumed(store: Path, columns: str) -> list[tuple[Any, ...]]:
    engine = read_only_engine(store)
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                f"SELECT {columns} FROM consumed_steps "
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
        f"run/0/train/1/0/{row.position}/0",
        row.step,
        len(row.reply),
        *(advantage, advantage, weight, weight),
        pytest.approx(old, abs=1e-12),
    )


REPORT = (
    "episode_id, step_index, num_tokens, "
    "advantage_low, advantage_high, weight_low, weight_high, old_logprob_sum"
)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_the_loss_read_is_in_the_store_once_for_each_row(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
    loss: LossConfig,
) -> None:
    longest = max(len(row.prompt + row.reply) for row in rows)
    with StoreWriter(store) as writer:
        update(worker, rows, loss, micro_batch_tokens=longest, writer=writer)

    assert consumed(store, REPORT) == [report_of(row) for row in rows]
    places = consumed(store, "optimizer_step_index, rank, micro_batch, row_index")
    assert {place[:2] for place in places} == {(0, 0)}
    assert len(set(places)) == len(rows)
    assert len({micro_batch for _, _, micro_batch, _ in places}) > 1


def test_a_row_that_is_given_twice_is_in_the_store_twice(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    with StoreWriter(store) as writer:
        update(worker, [*rows, rows[2]], LOSSES["clipped"], writer=writer)

    twice = [*rows[:3], *rows[2:]]
    assert consumed(store, REPORT) == [report_of(row) for row in twice]


def test_what_the_trainer_left_out_and_padding_are_not_in_the_store(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    with StoreWriter(store) as writer:
        update(worker, [PADDING, *rows[1:4], PADDING], LOSSES["clipped"], writer=writer)

    assert consumed(store, REPORT) == [report_of(row) for row in rows[1:4]]


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
        with StoreWriter(store) as writer:
            update(worker, rows, LOSSES["clipped"], writer=writer)
    finally:
        hook.remove()
        module.gradient_checkpointing_disable()

    assert len(forwards) == 2  # again in the backward pass
    assert consumed(store, REPORT) == [report_of(row) for row in rows]


def test_an_error_of_the_store_ends_the_update(
    worker: Any,  # noqa: ANN401
    rows: list[Row],
    store: Path,
) -> None:
    unknown = [replace(rows[0], position=1, step=3), *rows[1:]]
    with (
        StoreWriter(store) as writer,
        pytest.raises(StoreError, match=r"consumed step 3, but episode .* has 3 steps"),
    ):
        update(worker, unknown, LOSSES["clipped"], writer=writer)

    assert consumed(store, REPORT) == []
