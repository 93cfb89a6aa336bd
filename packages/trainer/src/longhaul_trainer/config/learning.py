"""How trajectories become a gradient, and how progress is measured and kept."""

from typing import Annotated, Literal

from pydantic import Field

from longhaul_trainer.config.section import Section

Beta = Annotated[float, Field(ge=0, lt=1)]


class TasksConfig(Section):
    """In what order tasks are trained on."""

    order: Literal["shuffled", "difficulty"] = "shuffled"
    """Every task once in each pass, or those most often that are solved about every other time."""
    uniform_share: float = Field(default=0.1, gt=0, le=1)
    """Share of `difficulty`'s draws that falls on all tasks alike, however hard they are."""
    smoothing: float = Field(default=0.5, gt=0, le=1)
    """Weight of a task's newest group in its recent success rate, which `difficulty` goes by."""


class AlgorithmConfig(Section):
    """How trajectories become advantages and loss weights."""

    name: Literal["grpo", "gigpo"] = "gigpo"
    """`grpo` compares whole episodes of a task; `gigpo` also steps taken from the same state."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Of the return-to-go, per environment step, not per token."""
    scale_by_std: bool = True
    """Divide advantages by the standard deviation of what they are compared with."""
    step_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight (omega) of GiGPO's step part beside the episode part; `grpo` has no step part."""
    statistics: Literal["episode", "row"] = "episode"
    """Mean and deviation over episodes, or over rows as in GiGPO's reference code, where a long
    episode counts more."""
    loss_unit: Literal["token", "step", "episode"] = "token"
    """What weighs the same in the loss, however an episode was cut into rows."""
    invalid_action_penalty: float = Field(default=0.0, ge=0)
    """Subtracted from the reward of a step whose action is invalid, for advantages only; the
    environment's reward is stored as it was."""


class LossConfig(Section):
    """The policy loss."""

    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Probability ratios are clipped below at 1 - clip_low."""
    clip_high: float = Field(default=0.2, gt=0)
    """Probability ratios are clipped above at 1 + clip_high."""
    dual_clip: float = Field(default=3.0, gt=1)
    """Bound of the loss, in units of the advantage, where the advantage is negative."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the divergence from the starting model; 0 keeps no reference model."""
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the divergence; k3's value is unbiased, its gradient is not the KL's."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""


class OptimizerConfig(Section):
    """AdamW, and how a training step is cut into updates."""

    learning_rate: float = Field(default=1e-6, gt=0)
    """After warm-up; constant."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled, as in AdamW."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)
    """Decay of AdamW's first and second moments."""
    max_gradient_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    warmup_training_steps: int = Field(default=0, ge=0)
    """Training steps over which the learning rate rises from 0."""
    optimizer_steps_per_training_step: int = Field(default=1, ge=1)
    """Parameter updates from one training step's episodes; each takes whole groups."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens that go through the model at once; memory, not mathematics, depends on it."""


class ValidationConfig(Section):
    """Greedy episodes on fixed panels of tasks."""

    num_tasks: int = Field(default=64, ge=1)
    """Tasks of the validation panel, which chooses the best checkpoint."""
    every: int = Field(default=0, ge=0)
    """Training steps between validations; 0 validates only before and after."""
    before: bool = True
    """Validate the starting model too."""
    test_num_tasks: int = Field(default=128, ge=1)
    """Tasks of the held-out panel that `trainer evaluate` reads."""


class CheckpointConfig(Section):
    """What is kept of the weights."""

    every: int = Field(default=10, ge=0)
    """Training steps between checkpoints; 0 keeps only the last."""
    keep_last: int = Field(default=2, ge=1)
    """Checkpoints to resume from that are kept."""
    keep_best: bool = True
    """Keep the checkpoint that did best in validation, too."""
