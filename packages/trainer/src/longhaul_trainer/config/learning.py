"""How trajectories become a gradient, and how progress is measured and kept."""

from collections.abc import Generator
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from longhaul_trainer.config.section import Section

Beta = Annotated[float, Field(ge=0, lt=1)]

CLIP_RANGES: dict[str, dict[str, object]] = {
    "ppo": {"dual_clip": 3.0},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
}
"""What a kind of loss takes where the run leaves it out: GSPO's as published
(arXiv:2507.18071), CISPO's weight bounded above alone, at 5 (arXiv:2510.13786)."""


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
    overlong_penalty: float = Field(default=0.0, ge=0)
    """DAPO's soft overlong shaping: subtracted in the same way from the reward of a step whose
    reply has overlong_end_tokens or more, in proportion from overlong_start_tokens on."""
    overlong_start_tokens: int | None = Field(default=None, ge=0)
    """Longest reply without an overlong penalty."""
    overlong_end_tokens: int | None = Field(default=None, ge=1)
    """Shortest reply with the whole overlong penalty."""
    overlong_unit: Literal["step", "episode"] = "step"
    """The reply of each step is measured, or all replies of the episode together, whose last step
    then pays."""
    reward_kl_coefficient: float = Field(default=0.0, ge=0)
    """Subtracted from a step's reward, in the same way, for each unit of the divergence from the
    starting model, summed over the reply's tokens; 0 leaves it out."""
    reward_kl_kind: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of the divergence in the reward. There k1 gives the KL's gradient, and k3 does
    not."""

    def contradictions(self) -> Generator[str]:
        """An overlong penalty needs two lengths, and lengths need a penalty."""
        start, end = self.overlong_start_tokens, self.overlong_end_tokens
        if self.overlong_penalty > 0 and (start is None or end is None):
            yield (
                f"overlong_penalty = {self.overlong_penalty:g} needs overlong_start_tokens and "
                "overlong_end_tokens, the lengths between which it rises"
            )
        if self.overlong_penalty == 0 and (start is not None or end is not None):
            yield (
                "overlong_start_tokens and overlong_end_tokens do nothing at overlong_penalty = 0; "
                "raise it, or leave them out"
            )
        if start is not None and end is not None and start >= end:
            yield (
                f"overlong_start_tokens = {start} must be less than overlong_end_tokens = {end}; "
                "the penalty rises between them"
            )


class LossConfig(Section):
    """The policy loss."""

    kind: Literal["ppo", "gspo", "cispo"] = "ppo"
    """`ppo` clips the ratio of each token, `gspo` that of a step's whole reply (a mean over its
    tokens, so its clip range is far smaller); `cispo` clips a weight and keeps every token's
    gradient. DAPO's loss is `ppo` with clip_high = 0.28."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """Probability ratios are clipped below at 1 - clip_low; 1 sets no lower bound. Left out, it is
    0.0003 for `gspo` and 1 for `cispo`."""
    clip_high: float = Field(default=0.2, gt=0)
    """Probability ratios are clipped above at 1 + clip_high. Left out, it is 0.0004 for `gspo` and
    4 for `cispo`."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Bound of the loss, in units of the advantage, where the advantage is negative; of `ppo`
    alone, and 3 if left out."""
    importance_sampling: Literal["none", "token", "sequence"] = "none"
    """Multiply each token's policy loss by how much likelier the learner finds what the engine
    sampled: the token, or the whole reply of the step."""
    importance_cap: float = Field(default=2.0, ge=1)
    """Importance weights are truncated to this; `none` does not read it."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the divergence from the starting model in the loss; 0 leaves it out. No reference
    model is kept if algorithm.reward_kl_coefficient is 0 too."""
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the divergence in the loss; k3's value is unbiased, its gradient is not the
    KL's: k2's is."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""

    @model_validator(mode="before")
    @classmethod
    def _clip_range_of_its_kind(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, object]", value)
        kind = table.get("kind", cls.model_fields["kind"].default)
        ranges = CLIP_RANGES[kind] if isinstance(kind, str) and kind in CLIP_RANGES else {}
        return ranges | table

    def contradictions(self) -> Generator[str]:
        """The dual clip is PPO's, and PPO has one."""
        if self.kind == "ppo" and self.dual_clip is None:
            yield 'kind = "ppo" needs dual_clip, got none; 3 is the usual one'
        if self.kind != "ppo" and self.dual_clip is not None:
            yield (
                f'dual_clip = {self.dual_clip:g} is of kind = "ppo"; kind = "{self.kind}" has '
                "none, so leave it out"
            )


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
