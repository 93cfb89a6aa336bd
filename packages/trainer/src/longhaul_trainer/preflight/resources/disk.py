"""Disk that a run fills: checkpoints, models, and a store that is a file."""

import math
from dataclasses import dataclass

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.verl.composed import Composed
from longhaul_trainer.verl.queue_rows import TRAINED_CALLS

GIB = 2**30
LOGS_BYTES = 1.0 * GIB

STORED_STEP_BYTES = 3_000
"""A step in the store, but for its replies: an observation of 1.1 KB, its tokens, its numbers and
what its prompts add. Prompts repeat what came before, and are not stored again."""
STORED_REPLY_TOKEN_BYTES = 17
"""A reply's token there: its text, its id, two logprobs and an entropy. Both are measured: 5.6 KB a
step with replies of 156 tokens (`benchmarks/store_size.py`)."""
REMOVED_STEP_BYTES = 600
"""What `[retention]` leaves of a step; measured there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Bytes below a run's folder, and of its store."""

    checkpoint: float
    """One checkpoint."""
    num_checkpoints: int
    """That lie there at once: those kept, the best one, and the next while it is written."""
    models: float
    """The last and the best model, where the disk cannot link files."""
    most_stored: float
    """The store of the whole run, if every episode uses all its steps and every reply all its
    tokens; validation left out."""

    @property
    def folder(self) -> float:
        """Below the run's folder."""
        return self.num_checkpoints * self.checkpoint + self.models + LOGS_BYTES


def disk(run: RunConfig, composed: Composed, size: ModelSize, critic: ModelSize | None) -> Disk:
    """What a run writes.

    A checkpoint of the policy has what verl is told to save (`checkpoint.save_contents`): its
    shards, which are the model's weights and an adapter's, or the adapter's alone; the optimizer's
    two moments of each parameter that is trained; and a Hugging Face folder, the weights once more.
    All of it in the learner's precision, as `FSDPCheckpointManager` writes it. A critic's has
    weights and moments.

    Args:
        run: The run.
        composed: Its settings of verl.
        size: Of the policy; of no parameters where it is not known.
        critic: Of the critic; None without one.

    Where nothing is trained, no checkpoint and no model is written.
    """
    trained = size.num_trained(composed.lora_rank, composed.lora_targets)
    adapter = trained if composed.lora_rank else 0
    whole = size.num_parameters + adapter
    numbers = 0
    if "model" in composed.saved:
        numbers += adapter if adapter and composed.saves_adapter_alone else whole
    if "optimizer" in composed.saved:
        numbers += 2 * trained
    if "hf_model" in composed.saved:
        numbers += whole
    if critic is not None:
        each = {"model": 1, "optimizer": 2}
        numbers += critic.num_parameters * sum(each.get(what, 0) for what in composed.critic_saved)
    num_best = 1 if run.checkpoint.keep_best else 0
    number = composed.parameter_bytes
    return Disk(
        checkpoint=float(number * numbers),
        num_checkpoints=run.checkpoint.keep_last + num_best + 1 if composed.trains else 0,
        models=float(number * whole * (1 + num_best)) if composed.trains else 0.0,
        most_stored=_most_stored(run),
    )


def _most_stored(run: RunConfig) -> float:
    """Whole training steps, and what retention leaves of those before them."""
    rollout, retention = run.rollout, run.retention
    steps = run.tasks_per_training_step * run.episodes_of_a_group * rollout.horizon
    replies = TRAINED_CALLS.get(run.agent.kind, 1) * rollout.max_reply_tokens
    step_bytes = STORED_STEP_BYTES + STORED_REPLY_TOKEN_BYTES * replies
    older = max(0, run.num_training_steps - (retention.full_training_steps or math.inf))
    sampled = min(1.0, retention.sampled_groups / run.tasks_per_training_step)
    whole = run.num_training_steps - older * (1 - sampled)
    return steps * (whole * step_bytes + (run.num_training_steps - whole) * REMOVED_STEP_BYTES)
