"""Rows as the trainer hands them to the worker, an update of them, and gradients by definition.

Shared by the tests of one rank and of two; importing this imports no verl.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from longhaul_core.store import Record, StoreWriter
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.losses import ActionTokens, PolicyLoss, weighted_sums
from longhaul_trainer.training.step_metadata import METADATA, RowMetadata, packed
from row_metadata import beside, span

if TYPE_CHECKING:
    from longhaul_trainer.verl.loss_inputs import RecordWriter

TEMPERATURE = 0.7
MAX_ERROR = 1e-4
LENGTHS = [2, 3]
"""Steps of each episode: the rows are all the steps of two episodes of one group."""
SKEWED = [
    (300, 4),
    (280, 9),
    (230, 2),
    (150, 7),
    (20, 3),
    (12, 1),
    (9, 5),
    (7, 2),
    (40, 1),
    (60, 8),
]
"""Tokens of prompts and replies where a few rows have most of the tokens, and those come first."""
Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    """A row as the worker reads it: one number for each token of the response."""

    prompt: Sequence[int]
    response: Sequence[int]
    mask: Sequence[int]
    old_logprobs: Sequence[float]
    behavior_logprobs: Sequence[float]
    reference_logprobs: Sequence[float]
    advantages: Sequence[float]
    weights: Sequence[float]
    metadata: RowMetadata


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
    sample_index: int
    step: int
    is_padding: bool = False
    group: int = 0

    @property
    def read(self) -> ReadRow:
        """The row as the worker reads it."""
        num_tokens = len(self.reply)
        return ReadRow(
            prompt=self.prompt,
            response=self.reply,
            mask=[int(not self.is_padding)] * num_tokens,
            old_logprobs=self.old_logprobs,
            behavior_logprobs=self.behavior_logprobs,
            reference_logprobs=self.reference_logprobs,
            advantages=[self.advantage] * num_tokens,
            weights=[self.weight] * num_tokens,
            metadata=self.metadata,
        )

    @property
    def metadata(self) -> RowMetadata:
        """What the row was given when its episode was played."""
        call = span(step=self.step, tokens=len(self.reply), prompt_tokens=len(self.prompt))
        return beside(call, group_index=self.group, sample_index=self.sample_index)


class Reports:
    """Takes records as the run's recorder does, and keeps them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.settled: list[int] = []
        """How many there were, each time that they were waited for."""

    def put(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    def settle(self) -> None:
        self.settled.append(len(self.records))


class WriterBehind(StoreWriter):
    """Writes in a thread of its own what it is handed, as the run's recorder does in a process."""

    def __init__(self, store: str | Path) -> None:
        super().__init__(store)
        self._thread = ThreadPoolExecutor(1)
        self._pending: list[Future[None]] = []

    def put(self, records: Sequence[Record]) -> None:
        self._pending.append(self._thread.submit(self.write, records))

    def settle(self) -> None:
        pending, self._pending = self._pending, []
        for batch in pending:
            batch.result()

    def close(self, *, patience_seconds: float = 0.0) -> None:
        self._thread.shutdown()
        super().close(patience_seconds=patience_seconds)


PADDING = Row(
    prompt=(2,) * 127,
    reply=(2,),
    old_logprobs=(0.0,),
    behavior_logprobs=(0.0,),
    reference_logprobs=(0.0,),
    advantage=0.0,
    weight=0.0,
    sample_index=0,
    step=0,
    is_padding=True,
)
"""As verl makes it: a copy of a real row in all but its tokens, its metadata included."""

BOUND = 1.2


def against_the_engine(tokens: ActionTokens, settings: LossConfig) -> PolicyLoss:
    """A loss of one's own: the ratio to the engine that sampled, left out above a bound."""
    counted_BT = tokens.counted_BT()
    bound = settings.options["bound"]
    assert tokens.behavior_logprobs_BT is not None
    assert isinstance(bound, float)
    gap_BT = tokens.policy_logprobs_BT - tokens.behavior_logprobs_BT
    ratio_BT = torch.where(counted_BT, gap_BT, 0.0).exp()
    kept_BT = ratio_BT <= bound
    return weighted_sums(
        tokens,
        token_loss_BT=-(ratio_BT * kept_BT * tokens.advantages_BT),
        clipped_BT=~kept_BT,
        ratio_BT=ratio_BT,
    )


LOSSES = {
    "clipped": LossConfig(),
    "with k2 and entropy": LossConfig(
        kl_coefficient=0.3, kl_kind="k2", entropy_coefficient=0.05, clip_high=0.28
    ),
    "importance by token": LossConfig(importance_sampling="token", importance_cap=1.5),
    "gspo": LossConfig(kind="gspo", clip_low=0.1, clip_high=0.25, importance_sampling="sequence"),
    "cispo": LossConfig(kind="cispo", clip_low=0.3, clip_high=0.3),
    "one's own": LossConfig(
        kind=f"{__name__}:{against_the_engine.__name__}", options={"bound": BOUND}
    ),
}


def still_run(*, num_ranks: int = 1) -> RunConfig:
    """A run whose updates change no weight."""
    return RunConfig.model_validate(
        {
            "num_training_steps": 8,
            "tasks_per_training_step": 2,
            "model": {"engine_dtype": "float32"},
            "optimizer": {"learning_rate": 1e-30, "max_gradient_norm": 1e9},
            "resources": {"num_workers": num_ranks},
        }
    )


def make_rows(
    plain: Any,  # noqa: ANN401
    *,
    lengths: Sequence[tuple[int, int]] = ((9, 3), (40, 1), (17, 8), (5, 5), (23, 2)),
) -> list[Row]:
    """Rows of different lengths; some ratios inside the clip range, some far outside it.

    Args:
        plain: The model whose ratios they are.
        lengths: Tokens of each row's prompt and reply.
    """
    draw = torch.Generator().manual_seed(0)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, 4096, (number,), generator=draw).tolist())

    drawn: list[Row] = []
    shifts = [0.05, -0.6, 0.7, -0.1, 1.4, -0.02, 0.45, 0.0]
    advantages = [1.5, -0.8, 0.6, -2.0, 0.3]
    num_tokens = sum(reply for _, reply in lengths)
    steps = [(0, step) for step in range(LENGTHS[0])]
    steps += [(1, step) for step in range(len(lengths) - LENGTHS[0])]
    for place, (prompt_length, reply_length) in enumerate(lengths):
        sample_index, step = steps[place]
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
                advantage=advantages[place % len(advantages)],
                weight=1.0 / num_tokens,
                sample_index=sample_index,
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
    if "bound" in loss.options:
        ratio = torch.exp(logprobs[place] - row.behavior_logprobs[place])
        return -ratio * row.advantage * float(ratio <= BOUND)
    ratio = torch.exp(logprobs[place] - row.old_logprobs[place])
    if loss.kind == "gspo":
        ratio = torch.exp((logprobs - torch.tensor(row.old_logprobs)).mean())
    clipped = ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high)
    if loss.kind == "cispo":
        return -float(clipped) * row.advantage * logprobs[place]
    surrogate = torch.minimum(ratio * row.advantage, clipped * row.advantage)
    if loss.kind == "ppo" and row.advantage < 0:
        surrogate = surrogate.clamp(min=loss.dual_clip * row.advantage)
    return -surrogate


def expected_importance(row: Row, place: int, loss: LossConfig) -> float:
    """How much likelier the learner found what was sampled, up to the cap."""
    gaps = [o - b for o, b in zip(row.old_logprobs, row.behavior_logprobs, strict=True)]
    if loss.importance_sampling == "none":
        return 1.0
    gap = gaps[place] if loss.importance_sampling == "token" else sum(gaps)
    return min(math.exp(gap), loss.importance_cap)


def columns_of(rows: Sequence[ReadRow]) -> dict[str, Any]:
    """What a worker gets of rows, by verl's names."""

    def jagged(column: Callable[[ReadRow], Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        tensors = [torch.tensor(column(row), dtype=dtype) for row in rows]
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    return {
        "input_ids": jagged(lambda row: [*row.prompt, *row.response], torch.int64),
        "position_ids": jagged(lambda row: range(len(row.prompt) + len(row.response)), torch.int64),
        "prompts": jagged(lambda row: row.prompt, torch.int64),
        "responses": jagged(lambda row: row.response, torch.int64),
        "response_mask": jagged(lambda row: row.mask, torch.int64),
        "loss_mask": jagged(lambda row: row.mask, torch.int64),
        "old_log_probs": jagged(lambda row: row.old_logprobs, torch.float32),
        "rollout_log_probs": jagged(lambda row: row.behavior_logprobs, torch.float32),
        "ref_log_prob": jagged(lambda row: row.reference_logprobs, torch.float32),
        "advantages": jagged(lambda row: row.advantages, torch.float32),
        "loss_weights": jagged(lambda row: row.weights, torch.float32),
        "extra_fields": [{METADATA: packed(row.metadata), "reward_extra_info": {}} for row in rows],
    }


def update(
    worker: Any,  # noqa: ANN401
    rows: Sequence[Row],
    loss: LossConfig,
    *,
    micro_batch_tokens: int = 4096,
    writer: "RecordWriter | None" = None,
    num_ranks: int = 1,
    optimizer_step: int = 0,
    columns: Mapping[str, Any] | None = None,
) -> tuple[Gradients, dict[str, Any]]:
    """Gradients just before the optimizer's step, and the metrics of `update_actor`.

    With several ranks, each calls it with as many rows as the others.
    """
    return update_of(
        worker,
        [row.read for row in rows],
        loss,
        micro_batch_tokens=micro_batch_tokens,
        writer=writer,
        num_ranks=num_ranks,
        optimizer_step=optimizer_step,
        columns=columns,
    )


def update_of(
    worker: Any,  # noqa: ANN401
    rows: Sequence[ReadRow],
    loss: LossConfig,
    *,
    micro_batch_tokens: int = 4096,
    writer: "RecordWriter | None" = None,
    num_ranks: int = 1,
    optimizer_step: int = 0,
    columns: Mapping[str, Any] | None = None,
) -> tuple[Gradients, dict[str, Any]]:
    """`update` with rows of any number of steps; `columns` take the place of those of text."""
    from verl.utils import tensordict_utils as tu

    from longhaul_trainer.verl.loss_inputs import (
        OPTIMIZER_STEP,
        TRAINING_STEP,
        MicroBatchReports,
        ReportedLoss,
    )

    batch = tu.get_tensordict(
        columns_of(rows) | dict(columns or {}),
        non_tensor_dict={
            "calculate_entropy": loss.entropy_coefficient > 0,
            "distillation_use_topk": False,
            "distillation_only": False,
            "global_batch_size": len(rows) * num_ranks,
            "mini_batch_size": len(rows) * num_ranks,
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": TEMPERATURE,
            "max_token_len_per_gpu": micro_batch_tokens,
            TRAINING_STEP: 1,
            OPTIMIZER_STEP: optimizer_step,
        },
    )
    found: Gradients = {}
    engine = worker.actor.engine

    def keep(*_: object) -> None:
        for name, parameter in engine.module.named_parameters():
            if parameter.requires_grad:  # an adapter's alone, where there is one
                found[name] = parameter.grad.full_tensor().clone()

    worker.set_loss_fn(
        ReportedLoss(
            loss,
            MicroBatchReports(run_id="run", attempt=0, find_writer=lambda: writer or Reports()),
        )
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
