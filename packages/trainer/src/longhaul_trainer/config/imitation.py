"""Which stored episodes a run imitates, in place of playing its own or beside them."""

from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from longhaul_core.advantages.preferences import PreferenceSettings
from longhaul_trainer.config.component_settings import Scalar
from longhaul_trainer.config.section import Section
from longhaul_trainer.config.toml import toml_value

_READ_OF_ALGORITHM = ("loss_unit", "tokens_per_episode", "discount")
_SUMS_OVER_TOKENS = {"loss_unit": "fixed_token", "tokens_per_episode": 1}
"""The only loss unit that has DPO's gradient: see `longhaul_core.advantages.dpo`."""
_OF_NLL = {"best_per_task", "weight"}
_UNREAD_SECTIONS = ("horizon_schedule", "sampling", "critic", "warm_start")


class ImitationSource(Section):
    """Episodes of one run of the store."""

    run: str = Field(min_length=1)
    """A run's id, or a name, which stands for the newest run that has it: one of `trainer
    demonstrate`, a training, an import, or what a person played."""
    where: Mapping[str, Scalar] = {"success": True}
    """Which of its episodes: the conditions of the viewer, of the API and of `trainer export
    --where`, all of which hold; left out, with `imitation.loss = "dpo"`, all that ended. Failed
    ones are never imitated, and of a training those of its panels only if `phase` asks for
    them."""
    weight: float = Field(default=1.0, gt=0)
    """Factor of their tokens' weight in the loss."""


class ImitationConfig(PreferenceSettings, Section):
    """Supervised fine-tuning on stored episodes, in place of reinforcement learning or beside it.

    With a `coefficient` above 0 reinforcement learning adds the sources' loss to its own. Otherwise
    a run with sources imitates: its training steps take tasks that were demonstrated, and play the
    stored episodes again by the run's own memory, prompt and action form. Of `[algorithm]` it reads
    the loss unit, and of `[loss]` the shares of purposes; the other settings of reinforcement
    learning are left out, so one file may describe both. With `loss = "dpo"` the loss unit is one
    that adds tokens up, whatever the file has, and purposes have no shares.
    """

    sources: Annotated[tuple[ImitationSource, ...], Field(strict=False)] = ()
    """A `[[imitation.sources]]` table each; empty for reinforcement learning alone."""
    coefficient: float = Field(default=0.0, ge=0)
    """Of `trainer train`: above 0, each update adds the mean negative log-likelihood of
    demonstrations, at the temperature of the rollout, times this, to its own loss (CHORD's
    μ/(1 − μ), arXiv:2508.11408). 0: the sources are for `trainer imitate`, which leaves this and
    the next three out."""
    final_coefficient: float = Field(default=0.0, ge=0)
    """What the coefficient becomes linearly, where `decay_training_steps` is not 0."""
    decay_training_steps: int = Field(default=0, ge=0)
    """Training steps after which it is `final_coefficient`, and stays so; 0: it never changes."""
    demonstrations_per_group: int = Field(default=1, ge=1)
    """Stored episodes that are imitated beside each group of the update, in an order that is drawn
    by the seed, each once in a pass."""
    loss: Literal["nll", "dpo"] = "nll"
    """`nll`: the negative log-likelihood of the replies. `dpo`: direct preference optimization over
    pairs of a better and a worse episode of a task (ETO, arXiv:2403.02502), or step, with the
    summed log-probabilities of all its replies."""
    best_per_task: int = Field(default=1, ge=1)
    """Of `nll`: most episodes of each task, those with the highest returns, of equal ones the
    shorter."""
    weight: Literal["one", "return"] = "one"
    """Of `nll`: what a token of an episode counts beside those of others: `one`, or the episode's
    `return` (AgentEvol, arXiv:2406.04151), which must not be negative; times its source's
    weight."""
    prompts: Literal["recorded", "recomposed"] = "recorded"
    """`recorded`: refuse sources whose prompts are not those that this run would compose.
    `recomposed`: imitate the replies to the prompts that this run composes."""
    new_model_layers: int = Field(default=0, ge=0, le=64)
    """Where `model.path` is no folder, `trainer imitate` makes it: a Llama of so many layers with
    random weights, and the words of the sources as its vocabulary. 0: the model is there."""
    new_model_width: int = Field(default=64, ge=32, le=4096, multiple_of=32)
    """Its hidden size, of which each 32 are an attention head."""
    new_model_vocabulary: int = Field(default=512, ge=300, le=65536)
    """Most tokens that it knows; 256 of them are bytes, so it reads any text."""

    @property
    def imitates(self) -> bool:
        """Whether the run imitates, in place of reinforcement learning."""
        return bool(self.sources) and not self.coefficient

    @property
    def beside_each_group(self) -> int:
        """Stored episodes that are imitated beside each group of reinforcement learning."""
        return self.demonstrations_per_group if self.coefficient else 0

    def coefficient_at(self, training_step: int) -> float:
        """Of the demonstrations' loss in the update of a training step (1-based)."""
        if not self.coefficient or not self.decay_training_steps:
            return self.coefficient
        share = min(1.0, (training_step - 1) / self.decay_training_steps)
        return self.coefficient + share * (self.final_coefficient - self.coefficient)

    @property
    def preferences(self) -> PreferenceSettings | None:
        """Which episodes or steps make pairs; None where none do."""
        return self if self.imitates and self.loss == "dpo" else None

    @property
    def compares_steps(self) -> bool:
        """Whether pairs are of steps."""
        return self.preferences is not None and self.pairs == "steps"

    def conflicts(self) -> Generator[str]:
        """Each loss has its own settings."""
        if self.coefficient and not self.sources:
            yield (
                f"imitation.coefficient = {self.coefficient:g} adds the loss on demonstrations, "
                "and there is no source of any; describe [[imitation.sources]], or set it to 0"
            )
        if self.coefficient and self.final_coefficient and not self.decay_training_steps:
            yield (
                f"imitation.final_coefficient = {self.final_coefficient:g} is reached after "
                "imitation.decay_training_steps = 0: say after how many, or leave it out"
            )
        if self.coefficient and self.loss != "nll":
            yield (
                f"imitation.coefficient = {self.coefficient:g} adds the negative log-likelihood of "
                f'demonstrations, and imitation.loss = "{self.loss}" compares stored episodes; set '
                'imitation.loss = "nll", or coefficient = 0 and imitate them by `trainer imitate`'
            )
        of_other = set(PreferenceSettings.model_fields) if self.loss == "nll" else _OF_NLL
        for name in sorted(of_other):
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                yield (
                    f"imitation.{name} = {toml_value(value)} means nothing to imitation.loss = "
                    f'"{self.loss}"; leave it out, or set imitation.loss = '
                    f'"{"dpo" if self.loss == "nll" else "nll"}"'
                )
        for place, source in enumerate(self.sources):
            if self.loss == "dpo" and source.weight != 1:
                yield (
                    f"imitation.sources[{place}].weight = {source.weight:g} means nothing to "
                    'imitation.loss = "dpo", whose pairs weigh the same; leave it out'
                )


class WarmStartConfig(Section):
    """What `trainer train` does first: experts play, and the model imitates them.

    Each is a run of its own, as `trainer demonstrate` and `trainer imitate` make it; reinforcement
    learning begins with the imitation's weights.
    """

    demonstrations: int = Field(default=0, ge=0)
    """Training tasks of each environment that experts play; 0: `model.path` is trained as it is."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Share of the steps in which chance acts instead of the expert. It is imitated like the rest:
    the model is less sure, and reinforcement learning has more to choose from."""
    settings: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What the imitation has other than this file, as on the command line, e.g.
    `["num_training_steps=20", "optimizer.learning_rate=2e-3"]`."""


def as_imitation(given: object) -> object:
    """A run's table without what an imitation does not read; unchanged where it has no sources."""
    if not isinstance(given, dict):
        return given
    table = cast("dict[str, Any]", given)
    section = table.get("imitation")
    imitation = cast("dict[str, Any]", section) if isinstance(section, dict) else {}
    if not imitation.get("sources") or imitation.get("coefficient"):
        return table
    pairs = imitation.get("loss") == "dpo"
    kept = {name: value for name, value in table.items() if name not in _UNREAD_SECTIONS}
    algorithm = table.get("algorithm")
    read = cast("dict[str, Any]", algorithm) if isinstance(algorithm, dict) else {}
    kept["algorithm"] = {"name": "dpo" if pairs else "imitation"} | {
        name: read[name] for name in _READ_OF_ALGORITHM if name in read
    }
    if pairs:
        kept["algorithm"] |= _SUMS_OVER_TOKENS
        kept["imitation"] = imitation | {"sources": _of_all_outcomes(imitation["sources"])}
    kept["loss"] = {"kind": "nll"} | ({} if pairs else _shares_of_purposes(table.get("loss")))
    trainer = table.get("trainer")
    if isinstance(trainer, dict):
        limits = {"stage_limit_seconds"} & cast("dict[str, Any]", trainer).keys()
        kept["trainer"] = {name: cast("dict[str, Any]", trainer)[name] for name in limits}
    rollout = table.get("rollout", {})
    if isinstance(rollout, dict):
        kept["rollout"] = cast("dict[str, Any]", rollout) | {
            # The likelihood is that of the model as it is, whatever it will be sampled by.
            "temperature": 1.0,
            "top_p": 1.0,
        }
        if not pairs or imitation.get("pairs") != "steps":
            kept["rollout"]["group_size"] = _most_of_a_task(imitation, pairs=pairs)
    return kept


def _shares_of_purposes(loss: object) -> dict[str, Any]:
    found = cast("dict[str, Any]", loss) if isinstance(loss, dict) else {}
    return {"purposes": found["purposes"]} if "purposes" in found else {}


def _of_all_outcomes(sources: object) -> object:
    """Sources of pairs: where nothing is chosen, episodes that did not succeed are in them too."""
    if not isinstance(sources, list | tuple):
        return sources
    every: dict[str, Any] = {"where": {}}
    return [
        every | cast("dict[str, Any]", source) if isinstance(source, dict) else source
        for source in cast("Sequence[object]", sources)
    ]


def _most_of_a_task(imitation: Mapping[str, Any], *, pairs: bool) -> object:
    if not pairs:
        return imitation.get("best_per_task", 1)
    most = imitation.get("pairs_per_task", 1)
    return most + 1 if isinstance(most, int) else most
