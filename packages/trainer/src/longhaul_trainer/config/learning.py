"""Advantages, loss, optimizer, validation and checkpoints."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field, create_model, model_validator

from longhaul_core.advantages import LossUnit
from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.advantages.penalties import PenaltyOn
from longhaul_core.components import is_own
from longhaul_trainer.config.component_settings import BuiltInOrOwn, Option
from longhaul_trainer.config.estimator_settings import EstimatorSettings
from longhaul_trainer.config.section import Remark, Section
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.losses.registry import LOSSES, defaults_of, fields_of_every_loss

if TYPE_CHECKING:
    from longhaul_trainer.losses.ppo import PpoSettings

ACT = "act"
"""Purpose of the calls that choose actions."""
OWN_ESTIMATORS = "an estimator of your own"

Beta = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0)]


class TasksConfig(Section):
    """Which tasks there are, and the order in which those of training are drawn."""

    source: str | None = Field(default=None, min_length=1)
    """Tasks of a program (`agent.kind`): a file `….jsonl` or `….parquet` with one task in each line
    or row, or `module:name`, an iterable of your own or a function that takes a split's name and
    returns one. Left out, the tasks of `environment.id`, which says nothing to the program but
    which task it is."""
    order: Literal["shuffled", "difficulty"] = "shuffled"
    """`shuffled`: every task once in each pass. `difficulty`: tasks whose recent success rate is
    near 1/2 are drawn most often."""
    uniform_share: float = Field(default=0.1, gt=0, le=1)
    """Share of `difficulty`'s draws that is uniform over all tasks."""
    smoothing: float = Field(default=0.5, gt=0, le=1)
    """Weight of a task's newest group in its recent success rate, an exponential moving average
    that `difficulty` reads."""

    @property
    def name(self) -> str:
        """What tasks of a source are of, in place of an environment's id."""
        source = self.source or ""
        return source if is_own(source) else Path(source).stem


class AlgorithmConfig(EstimatorSettings, Section):
    """Advantages and the weights of the loss."""

    loss_unit: LossUnit = "token"
    """Loss aggregation: what has the same weight in the mean, however an episode is cut into rows.
    `fixed_token` divides by a constant, `tokens_per_episode`, in place of the number of tokens."""
    tokens_per_episode: int | None = Field(default=None, ge=1)
    """The constant of `fixed_token`: for example the most action tokens that an episode can
    have."""
    invalid_action_penalty: float = Field(default=0.0, ge=0)
    """Subtracted at a step whose action is invalid, for advantages only; the environment's reward
    is stored as it was."""
    invalid_action_penalty_on: PenaltyOn = Field(
        default="action",
        description="Subtract it from what the step alone is compared by, after returns are taken, "
        "as in verl-agent and GraphGPO's released code; or from the step's reward, which lowers "
        "the return of the whole episode and of the steps before. `action` is for "
        + ", ".join(f"`{name}`" for name, each in ESTIMATORS.items() if each.penalises_actions)
        + ", without `baseline_per_agent`.",
    )
    reward_shaping: Annotated[str | None, BuiltInOrOwn({})] = None
    """Function of your own that returns the reward of each step of an episode, from which
    advantages are computed; penalties are subtracted from it. The environment's reward is stored
    as it was."""
    overlong_penalty: float = Field(default=0.0, ge=0)
    """DAPO's soft overlong shaping: subtracted, for advantages only, from the reward of a step
    whose reply has overlong_end_tokens or more, in proportion from overlong_start_tokens on."""
    overlong_start_tokens: int | None = Field(default=None, ge=0)
    """Longest reply without an overlong penalty."""
    overlong_end_tokens: int | None = Field(default=None, ge=1)
    """Shortest reply with the whole overlong penalty."""
    overlong_unit: Literal["step", "episode"] = "step"
    """Measure the reply of each step, or all replies of the episode together; the penalty of an
    episode is subtracted at its last step."""
    reward_kl_coefficient: float = Field(default=0.0, ge=0)
    """Subtracted from a step's reward, in the same way, for each unit of the divergence from the
    starting model, summed over the reply's tokens; 0 leaves it out."""
    reward_kl_kind: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of the divergence in the reward. In the reward, k1 gives the gradient of the KL,
    and k3 does not."""

    def remarks(self) -> Generator[Remark]:
        """Each estimator reads its own settings, and each of some settings needs another."""
        for field in self.unread:
            value, default = getattr(self, field), type(self).model_fields[field].default
            if value != default:
                readers = [name for name, each in ESTIMATORS.items() if field in each.reads]
                shown = "…" if isinstance(value, Mapping) else toml_value(value)
                yield Remark(
                    f"algorithm.{field} = {shown} means nothing to algorithm.name = "
                    f'"{self.name}"; it is for {", ".join(readers) or OWN_ESTIMATORS}',
                    field,
                )
        if self.loss_unit != "fixed_token" and self.tokens_per_episode is not None:
            yield Remark(
                f"algorithm.tokens_per_episode = {self.tokens_per_episode} means nothing to "
                f'algorithm.loss_unit = "{self.loss_unit}"; it is for fixed_token',
                "tokens_per_episode",
            )
        for field in ("overlong_start_tokens", "overlong_end_tokens"):
            if self.overlong_penalty == 0 and (value := getattr(self, field)) is not None:
                yield Remark(
                    f"algorithm.{field} = {value} means nothing to algorithm.overlong_penalty = 0",
                    field,
                )

    def conflicts(self) -> Generator[str]:
        """What an estimator reads must agree."""
        yield from self.estimator_conflicts()
        yield from self._loss_unit_without_its_length()
        yield from self._penalty_on_actions_that_are_not_told_apart()
        yield from self._overlong_penalty_without_its_lengths()
        if self.reward_shaping is not None and self.needs_greedy_episode:
            yield (
                f'algorithm.reward_shaping = "{self.reward_shaping}" with algorithm.name = '
                f'"{self.name}": the greedy episode that is the baseline keeps the environment\'s '
                "reward; take another estimator"
            )
        if self.reward_kl_coefficient > 0 and self.needs_greedy_episode:
            yield (
                f"algorithm.reward_kl_coefficient = {self.reward_kl_coefficient:g} with "
                f'algorithm.name = "{self.name}" needs the divergence of greedy episodes, which '
                "the learner does not read; use loss.kl_coefficient"
            )

    def _penalty_on_actions_that_are_not_told_apart(self) -> Generator[str]:
        if self.invalid_action_penalty == 0 or self.invalid_action_penalty_on == "return":
            return
        if not self.penalises_actions or self.baseline_per_agent:
            per_agent = " with algorithm.baseline_per_agent = true" * self.baseline_per_agent
            yield (
                f"algorithm.invalid_action_penalty = {self.invalid_action_penalty:g} with "
                f'algorithm.invalid_action_penalty_on = "action" is not defined for '
                f'algorithm.name = "{self.name}"{per_agent}; set '
                'algorithm.invalid_action_penalty_on = "return"'
            )

    def _overlong_penalty_without_its_lengths(self) -> Generator[str]:
        start, end = self.overlong_start_tokens, self.overlong_end_tokens
        if self.overlong_penalty > 0 and (start is None or end is None):
            yield (
                f"algorithm.overlong_penalty = {self.overlong_penalty:g} needs "
                "algorithm.overlong_start_tokens and algorithm.overlong_end_tokens, the lengths "
                "between which it rises"
            )
        if start is not None and end is not None and start >= end:
            yield (
                f"algorithm.overlong_start_tokens = {start} must be less than "
                f"algorithm.overlong_end_tokens = {end}; "
                "the penalty rises between them"
            )

    def _loss_unit_without_its_length(self) -> Generator[str]:
        if self.loss_unit not in self.loss_units:
            yield (
                f'algorithm.loss_unit = "{self.loss_unit}" divides by lengths that '
                f'algorithm.name = "{self.name}" leaves out; set algorithm.loss_unit to one of '
                f"{', '.join(self.loss_units)}"
            )
        if self.loss_unit == "fixed_token" and self.tokens_per_episode is None:
            yield (
                'algorithm.loss_unit = "fixed_token" needs algorithm.tokens_per_episode, such as '
                "rollout.horizon × rollout.max_reply_tokens"
            )


class _NamedLoss(Section):
    kind: Annotated[str, BuiltInOrOwn({name: each.about for name, each in LOSSES.items()})] = "ppo"
    """What each token gives to the policy loss; or a function of your own."""


if TYPE_CHECKING:

    class _KindOfLoss(_NamedLoss, PpoSettings):
        """`[loss]` as the default kind has it, whose settings are read by name elsewhere."""
else:
    _KindOfLoss = create_model("_KindOfLoss", __base__=_NamedLoss, **fields_of_every_loss())


class LossConfig(_KindOfLoss):
    """The policy loss. What only some kinds read is left out for the others."""

    purposes: Mapping[str, Share] = {}
    """A share of the loss for each purpose of calls, as `{ act = 0.7, remember = 0.3 }`: its tokens
    are weighed by `algorithm.loss_unit` among themselves, so that a long summary takes nothing from
    a short action. Shares are relative to those of the purposes that an optimizer step has tokens
    of. A purpose that is not named counts with `act`, which must be. Empty: all tokens are weighed
    together."""
    options: Mapping[str, Option] = {}
    """Settings of a loss of your own, which gets them as `settings.options`."""
    importance_sampling: Literal["none", "token", "sequence"] = "none"
    """Multiply each token's policy loss by the importance weight between learner and engine, the
    ratio of their probabilities: of the token, or of the whole reply of the step."""
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
    def _defaults_of_its_kind(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, object]", value)
        return defaults_of(table.get("kind", cls.model_fields["kind"].default)) | table

    def conflicts(self) -> Generator[str]:
        """A kind has all of its settings."""
        defaults = defaults_of(self.kind)
        for name, default in defaults.items():
            if getattr(self, name) is None:
                yield (
                    f'loss.kind = "{self.kind}" needs loss.{name}, got none; leave the key out '
                    f"for {toml_value(default)}"
                )
        if self.purposes and ACT not in self.purposes:
            yield (
                f"loss.purposes names {', '.join(self.purposes)}, and not {ACT}, the purpose of "
                f"the calls that choose actions; give {ACT} a share, or leave loss.purposes out"
            )

    def remarks(self) -> Generator[Remark]:
        """A kind reads none of another's settings."""
        defaults = defaults_of(self.kind)
        for name in fields_of_every_loss():
            value = getattr(self, name)
            if name not in defaults and value is not None:
                readers = [kind for kind, each in LOSSES.items() if name in each.defaults]
                yield Remark(
                    f"loss.{name} = {toml_value(value)} means nothing to loss.kind = "
                    f'"{self.kind}"; it is for {", ".join(readers)}',
                    name,
                )
        if self.options and not is_own(self.kind):
            yield Remark(
                f'loss.options = … means nothing to loss.kind = "{self.kind}"; it is for a loss of '
                "your own",
                "options",
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
    """Training steps over which the learning rate rises to the whole: by as much with each
    optimizer step, the first of them included."""
    optimizer_steps_per_training_step: int = Field(default=1, ge=1)
    """Parameter updates from one training step's episodes; each takes whole groups."""
    rows: Literal["step", "merged"] = "step"
    """`step`: each trained call is a row of tokens of its own. `merged`: calls of one agent and
    purpose share a row wherever the next prompt begins with the previous prompt and reply, token by
    token, as with `memory.kind = "full"`, or a memory or an agent of your own: fewer tokens go
    through the model, and the gradient is the same."""
    max_row_tokens: int | None = Field(default=None, ge=1)
    """Longest row of several merged calls; a call that does not fit begins a new row. Left out, a
    row's only limit is that of a call: the longest prompt and reply."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens that go through the model at once; memory, not mathematics, depends on it."""

    def remarks(self) -> Generator[Remark]:
        """A limit of merged rows needs some."""
        if self.rows != "merged" and self.max_row_tokens is not None:
            yield Remark(
                f"optimizer.max_row_tokens = {self.max_row_tokens} means nothing to "
                f'optimizer.rows = "{self.rows}"; it is for merged',
                "max_row_tokens",
            )


class ValidationConfig(Section):
    """Episodes on fixed sets of tasks (panels), greedy by default."""

    num_tasks: int = Field(default=64, ge=0)
    """Tasks of the validation set, by which the best checkpoint is chosen; with 0 nothing is
    validated, and no checkpoint is the best."""
    split: Literal["validation", "train"] = "validation"
    """Where they are from: `train` validates on tasks that are trained on too, where there are too
    few to hold any out, and a score then says nothing of others."""
    every: int = Field(default=0, ge=0)
    """Training steps between validations; 0 validates only before and after."""
    before: bool = True
    """Validate the starting model too."""
    test_num_tasks: int = Field(default=128, ge=0)
    """Tasks of the test set that `trainer evaluate` plays; with 0 there need be none."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature on both sets, without nucleus sampling (top_p is 1); 0 is greedy."""
    samples_per_task: int = Field(default=1, ge=1)
    """Episodes of each task, every one with a seed of its own; a score is the mean over all."""

    def conflicts(self) -> Generator[str]:
        """Greedy episodes of a task are the same episode."""
        if self.samples_per_task > 1 and self.temperature == 0:
            yield (
                f"validation.samples_per_task = {self.samples_per_task} with "
                "validation.temperature = 0 would play one greedy episode "
                f"{self.samples_per_task} times; raise the temperature, or leave it at 1"
            )


class CheckpointConfig(Section):
    """What is kept of the weights."""

    every: int = Field(default=10, ge=0)
    """Training steps between checkpoints; 0 keeps only the last. A run that is ended from outside
    while no weights change keeps the last training step that is over as well."""
    grace_seconds: float = Field(default=240.0, ge=0)
    """How long a run goes on that gets SIGTERM or SIGHUP while its weights change, so that this
    training step is over and can be kept."""
    keep_last: int = Field(default=2, ge=1)
    """Checkpoints to resume from that are kept."""
    keep_best: bool = True
    """Keep the checkpoint that did best in validation, too: of those that played the most episodes
    of the panel, the one with the highest mean return."""
    optimizer: bool = True
    """Write what a resume needs: the weights in float32, AdamW's moments and the learning rate's
    schedule. Without it a checkpoint has the Hugging Face folder alone, and `trainer resume`
    refuses to go on from it."""
    huggingface: bool = True
    """Write the weights as a Hugging Face folder too. Without it the final and the best model are
    written from the learner's own files when the run ends."""

    def conflicts(self) -> Generator[str]:
        """A checkpoint holds something."""
        if not self.optimizer and not self.huggingface:
            yield (
                "checkpoint.optimizer = false and checkpoint.huggingface = false leave nothing "
                "in a checkpoint; set one of them to true"
            )
