"""How trajectories become a gradient, and how progress is measured and kept."""

from collections.abc import Generator, Mapping
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from longhaul_trainer.config.section import Section
from longhaul_trainer.config.toml import toml_value

Beta = Annotated[float, Field(ge=0, lt=1)]

CLIP_RANGES: dict[str, dict[str, object]] = {
    "ppo": {"dual_clip": 3.0},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
}
"""What a kind of loss takes where the run leaves it out: GSPO's as published
(arXiv:2507.18071), CISPO's weight bounded above alone, at 5 (arXiv:2510.13786)."""


EstimatorName = Literal[
    "gigpo",
    "grpo",
    "drgrpo",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "hgpo",
    "graphgpo",
    "pass_at_k",
    "remax",
    "gae",
]

COMPARES_NO_EPISODES: tuple[EstimatorName, ...] = ("remax", "gae", "reinforce_plus_plus")
"""Estimators whose baseline does not come from the other episodes of a group: one is enough."""

READ_BY: Mapping[str, tuple[EstimatorName, ...]] = {
    # The last three divide by nothing, so `false` says no more than their names.
    "scale_by_std": ("gigpo", "grpo", "hgpo", "graphgpo", "pass_at_k", "drgrpo", "rloo", "remax"),
    "statistics": ("gigpo", "grpo", "graphgpo"),
    "step_advantage_weight": ("gigpo", "graphgpo"),
    "episode_advantage_weight": ("graphgpo",),
    "anchor_similarity": ("gigpo", "graphgpo"),
    "distance_decay": ("graphgpo",),
    "distance_form": ("graphgpo",),
    "history_length": ("hgpo",),
    "history_weight_exponent": ("hgpo",),
    "whiten": ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae"),
    "gae_level": ("gae",),
    "gae_lambda": ("gae",),
    "pass_k": ("pass_at_k",),
}
"""Estimators that a setting means something to; the others refuse it unless it is the default."""


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

    name: EstimatorName = "gigpo"
    """What an episode or a step is compared with: the episodes of its task (`grpo`, divided by
    nothing in `drgrpo`; the others of them in `rloo`; the best others in `pass_at_k`), steps
    from the same state as well (`gigpo`), steps from the same state and past alone (`hgpo`), steps
    from the same state by how near they led to success in any episode of the task (`graphgpo`), the
    whole training step (`reinforce_plus_plus`; less the task's mean in `…_baseline`), a greedy
    episode of the task that is played beside the group and not trained (`remax`), or what a critic
    expected (`gae`)."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Of the return-to-go, per environment step, not per token; `gigpo`, `hgpo`, `gae`
    and `reinforce_plus_plus` learn from it, the others only report it."""
    scale_by_std: bool = True
    """Divide advantages by the standard deviation of what they are compared with; `drgrpo`,
    `rloo` and `remax` never do, and `reinforce_plus_plus` and `gae` always divide by the training
    step's."""
    step_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight (omega) of the step part beside the episode part; for `gigpo` and `graphgpo`."""
    episode_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight of the episode part beside the step part; for `graphgpo`."""
    statistics: Literal["episode", "row"] = "episode"
    """Mean and deviation over episodes, or over rows as in GiGPO's reference code, where a long
    episode counts more; for `grpo`, `gigpo` and `graphgpo`."""
    anchor_similarity: float | None = Field(default=None, gt=0, lt=1)
    """Take states whose texts are at least this alike for one; left out, only equal ones. For
    `gigpo` and `graphgpo`."""
    distance_decay: float = Field(default=0.1, gt=0, lt=1)
    """By what each step further from the goal multiplies the worth of a state (omega), for
    `graphgpo`. With `proximity` and `scale_by_std`, 0.1 leaves next to nothing to states that
    are more than 8 steps from the goal."""
    distance_form: Literal["proximity", "progress"] = "proximity"
    """What `graphgpo` pays a step for: how near the goal is from where it led, or how much nearer
    than from where it was taken."""
    history_length: int = Field(default=2, ge=0)
    """Past states (K) that `hgpo` looks at, as many as the memory shows."""
    history_weight_exponent: float = Field(default=1.0, ge=0)
    """How much more `hgpo` trusts steps that share more of the past (alpha); 0 trusts all alike."""
    whiten: Literal["token", "episode"] = "token"
    """What counts the same in the training step's mean and deviation; for `reinforce_plus_plus`,
    `reinforce_plus_plus_baseline` and `gae`."""
    gae_level: Literal["step", "token"] = "step"
    """Values and advantages of whole actions, or of each of their tokens; for `gae`. Discount and
    trace decay apply once a step in both."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """How far `gae` looks past its critic (lambda), per environment step: 0 trusts the critic
    after one step, 1 only where an episode is truncated."""
    pass_k: int | None = Field(default=None, ge=2)
    """Attempts of which the best counts in `pass_at_k`, at most `rollout.group_size`; left out,
    all that did not fail. A group with fewer is left out."""
    loss_unit: Literal["token", "step", "episode", "fixed_token"] = "token"
    """What weighs the same in the loss, however an episode was cut into rows; `fixed_token` is
    `token` with a weight that does not follow the lengths of the episodes at hand."""
    tokens_per_episode: int | None = Field(default=None, ge=1)
    """What stands for an episode's length in `fixed_token`, such as the most action tokens that
    one can have."""
    invalid_action_penalty: float = Field(default=0.0, ge=0)
    """Subtracted from the reward of a step whose action is invalid, for advantages only; the
    environment's reward is stored as it was."""
    reward_shaping: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*:\w+$")
    """`package.module:function` of your own that gives each step the reward that credit is given
    for; penalties are subtracted from it. The environment's reward is stored as it was."""
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

    @property
    def uses_critic(self) -> bool:
        """Whether advantages need values."""
        return self.name == "gae"

    def conflicts(self) -> Generator[str]:
        """A setting must mean something beside the others."""
        yield from self._meaningless_settings()
        if self.step_advantage_weight == self.episode_advantage_weight == 0:
            yield (
                "step_advantage_weight = 0 and episode_advantage_weight = 0 leave no advantage to "
                "learn from; raise one"
            )
        yield from self._loss_unit_without_its_length()
        yield from self._overlong_penalty_without_its_lengths()
        if self.reward_shaping is not None and self.name == "remax":
            yield (
                f'reward_shaping = "{self.reward_shaping}" with name = "remax": the greedy episode '
                "that is the baseline keeps the environment's reward; take another estimator"
            )
        if self.name == "remax" and self.reward_kl_coefficient > 0:
            yield (
                f'reward_kl_coefficient = {self.reward_kl_coefficient:g} with name = "remax" needs '
                "the divergence of greedy episodes, which the learner does not read; use "
                "loss.kl_coefficient"
            )

    def _overlong_penalty_without_its_lengths(self) -> Generator[str]:
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

    def _meaningless_settings(self) -> Generator[str]:
        for field, names in READ_BY.items():
            value = getattr(self, field)
            if self.name not in names and value != type(self).model_fields[field].default:
                yield (
                    f"{field} = {toml_value(value)} means nothing to name = "
                    f'"{self.name}"; it is for {", ".join(names)}'
                )

    def _loss_unit_without_its_length(self) -> Generator[str]:
        if self.name == "drgrpo" and self.loss_unit in ("step", "episode"):
            yield (
                f'name = "drgrpo" with loss_unit = "{self.loss_unit}" divides by lengths, which '
                'Dr.GRPO leaves out; say loss_unit = "fixed_token" or "token"'
            )
        if self.loss_unit == "fixed_token" and self.tokens_per_episode is None:
            yield (
                'loss_unit = "fixed_token" needs tokens_per_episode, such as rollout.horizon × '
                "rollout.max_reply_tokens"
            )
        if self.loss_unit != "fixed_token" and self.tokens_per_episode is not None:
            yield (
                f"tokens_per_episode = {self.tokens_per_episode} is for loss_unit = "
                f'"fixed_token", got loss_unit = "{self.loss_unit}"'
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

    def conflicts(self) -> Generator[str]:
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
    rows: Literal["step", "merged"] = "step"
    """Each step is a row of tokens by itself, or steps are merged into one wherever the next
    prompt repeats the one before it and its reply token by token, as `memory.kind = "full"` lets
    it: fewer tokens go through the model, and the gradient is the same."""
    max_row_tokens: int | None = Field(default=None, ge=1)
    """Longest row of several merged steps; a step that does not fit begins a new one. Left out,
    a row ends with its last prompt and reply, as long as those two can be."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens that go through the model at once; memory, not mathematics, depends on it."""

    def conflicts(self) -> Generator[str]:
        """A limit of merged rows needs some."""
        if self.rows != "merged" and self.max_row_tokens is not None:
            yield (
                f'max_row_tokens = {self.max_row_tokens} is for rows = "merged", '
                f'got rows = "{self.rows}"'
            )


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
