"""How long eight H100 take for a training step of `scale.py`, and stand-ins that take that long.

A roofline: compute and memory bandwidth as NVIDIA's data sheet of the H100 SXM has them, the share
of them that is reached assumed (`Gpu`), shapes of Qwen2.5 from the models' own `config.json`.

- a prompt token costs 2 N floating-point operations (N parameters); every prompt is read in full,
  since a window memory leaves little to a prefix cache
- a reply token costs its share of a decoding step, which reads the weights and the keys and values
  of every sequence of the batch
- learning costs 12 N operations a token: 2 for the old log-probabilities, 2 for the reference's,
  8 for the update with recomputation
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# verl, TransferQueue and tensordict are typed in part.

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tensordict import TensorDict
    from transfer_queue import KVBatchMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What of a model decides how long it takes."""

    name: str
    parameters: float
    num_layers: int
    num_key_value_heads: int
    head_size: int

    @property
    def key_value_bytes(self) -> int:
        """Of a token in the engine's cache, in bfloat16."""
        return 2 * 2 * self.num_layers * self.num_key_value_heads * self.head_size


MODELS = (
    Model(name="7B", parameters=7.62e9, num_layers=28, num_key_value_heads=4, head_size=128),
    Model(name="1.5B", parameters=1.54e9, num_layers=28, num_key_value_heads=2, head_size=128),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An H100 SXM, and what is assumed to be reached of it."""

    operations: float = 989e12
    """bfloat16 without sparsity, a second."""
    bandwidth: float = 3.35e12
    """Bytes a second."""
    compute_share: float = 0.36
    bandwidth_share: float = 0.7

    def prompt_seconds(self, model: Model, *, num_tokens: int) -> float:
        """To read a prompt."""
        return 2 * model.parameters * num_tokens / (self.operations * self.compute_share)

    def token_seconds(self, model: Model, *, batch: int, context: int) -> float:
        """Of a decoding step, which writes a token of each of `batch` sequences."""
        moved = 2 * model.parameters + batch * context * model.key_value_bytes
        return moved / (self.bandwidth * self.bandwidth_share)

    def learning_seconds(self, model: Model, *, num_tokens: float) -> float:
        """Log-probabilities of policy and reference, and the update."""
        return 12 * model.parameters * num_tokens / (self.operations * self.compute_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """GPUs that play and learn in turns, each with an engine of its own."""

    model: Model
    prompt_tokens: int
    reply_tokens: int
    concurrency: int
    """Episodes at once, on all GPUs."""
    num_gpus: int = 8
    gpu: Gpu = Gpu()

    @property
    def batch(self) -> int:
        """Sequences that a GPU decodes at once, at most."""
        return max(1, self.concurrency // self.num_gpus)

    @property
    def token_seconds(self) -> float:
        """Of a decoding step."""
        context = self.prompt_tokens + self.reply_tokens // 2
        return self.gpu.token_seconds(self.model, batch=self.batch, context=context)

    @property
    def busy_seconds(self) -> float:
        """For which a reply keeps a GPU busy: its prompt, and its share of decoding."""
        prompt = self.gpu.prompt_seconds(self.model, num_tokens=self.prompt_tokens)
        return prompt + self.reply_tokens * self.token_seconds / self.batch

    @property
    def steps_per_second(self) -> float:
        """Most that all GPUs can play."""
        return self.num_gpus / self.busy_seconds

    def learning_seconds(self, *, num_rows: int) -> float:
        """Of a training step's rows."""
        tokens = num_rows * (self.prompt_tokens + self.reply_tokens) / self.num_gpus
        return self.gpu.learning_seconds(self.model, num_tokens=tokens)


class Reply(NamedTuple):
    """What replies are made of, in tokens."""

    opening: tuple[int, ...]
    words: tuple[int, ...]
    """One is drawn for each place of a thought."""
    closings: tuple[tuple[int, ...], ...]
    """One is drawn: the end of the thought, an action and the end of the reply."""


class Engine:
    """One GPU's engine: answers in the time that `Hardware` says, one prompt after the other.

    Replies are decoded side by side. An asynchronous Ray actor, as verl's server of an engine is.
    """

    def __init__(self, hardware: Hardware, reply: Reply, *, speed: float, seed: int) -> None:
        self._hardware = hardware
        self._reply = reply
        self._speed = speed
        self._random = random.Random(seed)
        self._free_at = 0.0
        self.busy_seconds = 0.0

    async def generate(
        self, *, prompt_ids: Sequence[int], sampling_params: dict[str, Any], **asked: object
    ) -> SimpleNamespace:
        """What `vLLMHttpServer.generate` returns, as far as `LLMServerClient` reads it."""
        del prompt_ids, asked
        now = time.monotonic()
        busy = self._hardware.busy_seconds / self._speed
        self._free_at = max(now, self._free_at) + busy
        self.busy_seconds += busy
        tokens = self._tokens(sampling_params["max_tokens"])
        decoding = len(tokens) * self._hardware.token_seconds / self._speed
        await asyncio.sleep(self._free_at + decoding - now)
        return SimpleNamespace(
            token_ids=tokens,
            log_probs=[-self._random.random() for _ in tokens],
            routed_experts=None,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": 0},
        )

    async def busy(self) -> float:
        """Seconds for which its GPU was busy."""
        return self.busy_seconds

    def _tokens(self, most: int) -> list[int]:
        opening, words, closings = self._reply
        closing = self._random.choice(closings)
        num_words = min(self._hardware.reply_tokens, most) - len(opening) - len(closing)
        return [*opening, *self._random.choices(words, k=max(1, num_words)), *closing]


class Rank:
    """A rank of the learner: reads its rows through verl's bridge, computes nothing.

    What it would compute takes its time. It reports what its loss would have read, as verl's worker
    does of each micro-batch.
    """

    def __init__(self, *, run_id: str, recorder_name: str, rank: int) -> None:
        self._run_id = run_id
        self._recorder_name = recorder_name
        self._rank = rank
        self._began = 0.0

    def ready(self) -> None:
        """Return once it has started."""

    def compute_log_prob(self, rows: KVBatchMeta, *, seconds: float) -> float:
        """Read the rows, and put a log-probability and an entropy of each of their tokens.

        Returns:
            Processor seconds of both.
        """
        from verl.utils.transferqueue_utils import tqbridge

        began = time.process_time()
        tqbridge()(self._log_probs)(rows)
        time.sleep(seconds)
        return time.process_time() - began

    def update_actor(self, rows: KVBatchMeta, *, seconds: float, rows_at_once: int) -> float:
        """Read the rows, and report each micro-batch.

        Returns:
            Processor seconds of both.
        """
        from verl.utils.transferqueue_utils import tqbridge

        self._rows_at_once = rows_at_once
        began = time.process_time()
        tqbridge()(self._report)(rows)
        time.sleep(seconds)
        return time.process_time() - began

    def _log_probs(self, data: TensorDict) -> TensorDict:
        import torch
        from tensordict import TensorDict

        whole: Any = data["input_ids"]
        column = torch.nested.nested_tensor_from_jagged(
            torch.full(whole.values().shape, -0.5), whole.offsets()
        )
        return TensorDict({"log_probs": column, "entropy": column.clone()}, batch_size=len(data))

    def _report(self, data: TensorDict) -> int:
        import torch
        from verl.utils import tensordict_utils as tu

        from longhaul_core.store.records import LossInputs
        from longhaul_trainer.verl.loss_inputs import loss_inputs
        from longhaul_trainer.verl.run_recorder import RunRecorder

        recorder = RunRecorder.find(self._recorder_name)
        tensors = ("advantages", "loss_weights", "old_log_probs", "loss_mask")
        whole: dict[str, Any] = {name: data[name] for name in tensors}
        columns = {name: column.unbind() for name, column in whole.items()}
        beside = data.get("extra_fields").tolist()
        for number, first in enumerate(range(0, len(data), self._rows_at_once)):
            places = slice(first, first + self._rows_at_once)
            micro_batch: dict[str, Any] = {
                name: torch.nested.as_nested_tensor(list(column[places]), layout=torch.jagged)
                for name, column in columns.items()
            }
            rows = loss_inputs(tu.get_tensordict({**micro_batch, "extra_fields": beside[places]}))
            recorder.put(
                [
                    LossInputs(
                        run_id=self._run_id,
                        attempt=0,
                        training_step=1,
                        optimizer_step_index=0,
                        rank=self._rank,
                        micro_batch=number,
                        rows=rows,
                    )
                ]
            )
        recorder.flush()
        return len(data)
