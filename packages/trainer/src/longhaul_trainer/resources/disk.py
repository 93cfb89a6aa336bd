"""Disk that a run fills: checkpoints, models, and a store that is a file."""

from dataclasses import dataclass

from longhaul_trainer.config import RunConfig
from longhaul_trainer.resources.composed import Composed
from longhaul_trainer.resources.model_size import ModelSize
from longhaul_trainer.resources.rows import episodes_of_a_group

GIB = 2**30
LOGS_BYTES = 1.0 * GIB

STORED_TOKEN_BYTES = 9
"""A step of 2,000 tokens takes 19 KB in the store: its text, its tokens and its numbers."""


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
    """The store of the whole run, if every episode uses all its steps and tokens; validation and
    what compresses well left out."""

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
    rollout = run.rollout
    steps = run.num_training_steps * run.tasks_per_training_step * episodes_of_a_group(run)
    tokens = steps * rollout.horizon * (rollout.max_prompt_tokens + rollout.max_reply_tokens)
    return Disk(
        checkpoint=float(number * numbers),
        num_checkpoints=run.checkpoint.keep_last + num_best + 1,
        models=float(number * whole * (1 + num_best)),
        most_stored=float(STORED_TOKEN_BYTES * tokens),
    )
