"""Disk that a run fills: checkpoints, models, and a store that is a file."""

from dataclasses import dataclass

from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.resources.composed import Composed
from longhaul_trainer.resources.model_size import ModelSize
from longhaul_trainer.resources.rows import TRAINED_CALLS, episodes_of_a_group

GIB = 2**30
LOGS_BYTES = 1.0 * GIB

STORED_STEP_BYTES = 1200
"""Of a step and its calls in the store: numbers and keys."""
STORED_TOKEN_BYTES = 5.5
"""Text and id of a token that is new to its episode, in an observation or a reply; what prompts
repeat is stored once (decision 21)."""
STORED_LOGPROB_BYTES = 8
"""Of a token of a reply: the sampler's and the learner's. The three constants are fitted to
`benchmarks/store_size.py`, which measures 5.1 KB a step under a window memory and 5.0 under a full
one."""
RETAINED_STEP_BYTES = 600
"""Of a step whose text and tokens are removed (`[retention]`); measured there too."""


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
    """The store of the whole run, if every episode uses all its steps and tokens; validation
    left out."""

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
    return Disk(
        checkpoint=float(number * numbers),
        num_checkpoints=run.checkpoint.keep_last + num_best + 1,
        models=float(number * whole * (1 + num_best)),
        most_stored=_most_stored(run),
    )


def _most_stored(run: RunConfig) -> float:
    """Bytes of all training episodes, less what `[retention]` removes of the older ones."""
    steps = run.tasks_per_training_step * episodes_of_a_group(run) * run.rollout.horizon
    full = run.retention.full_training_steps
    whole = run.num_training_steps if full is None else min(full, run.num_training_steps)
    sampled = min(1.0, run.retention.sampled_groups / run.tasks_per_training_step)
    older = run.num_training_steps - whole
    bytes_of_a_step = max(_stored_bytes_of_a_step(run, entry) for entry in run.played_environments)
    kept = sampled * bytes_of_a_step + (1 - sampled) * RETAINED_STEP_BYTES
    return steps * (whole * bytes_of_a_step + older * kept)


def _stored_bytes_of_a_step(run: RunConfig, environment: MixedEnvironmentConfig) -> float:
    """A step adds its observation and its reply to its episode.

    The longest prompt under a window of k exchanges has k + 1 observations; a full history fills it
    once in an episode, with replies. Of another memory each prompt is counted as new.
    """
    prompt, reply = run.rollout.max_prompt_tokens, run.rollout.max_reply_tokens
    calls = TRAINED_CALLS.get(run.agent.kind, 1)
    memory = environment.memory
    if memory.kind == "full":
        tokens = (prompt + reply) / run.rollout.horizon
        replies = min(tokens, calls * reply)
    else:
        shown = memory.size + 1 if memory.kind in ("window", "summary") else 1
        replies = calls * reply
        tokens = prompt / shown + replies
    return STORED_STEP_BYTES + STORED_TOKEN_BYTES * tokens + STORED_LOGPROB_BYTES * replies
