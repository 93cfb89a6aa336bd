"""What a run was meant to do, read from the configuration that the store keeps of it.

The configuration is read as plain JSON: the classes that wrote it are part of what is audited.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

from longhaul_core.audit.formulas import DEFINITIONS, Definition, Settings
from longhaul_core.errors import StoreError

__all__ = ["Horizons", "Intent"]

NOT_OURS = (
    ": it was not written by a training of this version, so there is nothing to hold the run to"
)

PAIR_SETTINGS = ("beta", "min_gap", "pairs", "pairs_per_task")
"""Of `[imitation]`: what credit follows from where pairs are compared."""


ACT = "act"
"""Purpose of the calls that choose actions."""


class _Stored(dict[str, Any]):
    """Settings of a section; one that is missing is the store's error, not the audit's."""

    def __missing__(self, key: str) -> NoReturn:
        raise StoreError(f"the stored configuration has no algorithm.{key}{NOT_OURS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizons:
    """How long the episodes of a training step may be."""

    kind: str
    """fixed, stepwise, linear or success_gated."""
    final: int
    stages: tuple[int, ...]
    training_steps_per_stage: int
    start: int
    end_training_step: int
    success_threshold: float
    success_window: int
    """Training steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The settings that decide what is trained. Names are the configuration's."""

    algorithm: Settings
    """The `[algorithm]` section as it is, and `PAIR_SETTINGS` where pairs are compared; a setting
    that it lacks is a `StoreError`."""
    purpose_shares: Mapping[str, float]
    """Of the loss, by the purpose of calls (`[loss.purposes]`); empty where all are counted as one,
    as in runs that were stored before there were any."""
    critic_warmup: int
    """Training steps at the beginning in which the critic alone learns."""
    reads_every_row: bool
    """Rows without an advantage go through the loss too, for its divergence or entropy."""
    dynamic_sampling: bool
    """Groups whose returns are all equal are left out and replaced."""
    max_refills: int
    """Waves of further tasks in a training step, with dynamic sampling; where groups are played
    ahead, so many times `tasks_per_training_step` single ones."""
    extra_tasks: int
    """Tasks that each wave starts beyond what it needs."""
    tasks_per_training_step: int
    group_size: int
    """Episodes of each task; the most there are of one, where they are imitated."""
    plays_ahead: bool
    """Asynchronous rollout: a later training step than the one that requested a group may take it,
    in the order in which groups finish."""
    max_staleness: int
    """Training steps that the weights which sampled may be behind those that learn."""
    optimizer_steps: int
    """Of each training step."""
    temperature: float
    """Of sampling while training."""
    rows: str
    """step or merged."""
    max_row_tokens: int | None
    top_p: float
    exact_engine: bool
    """Engine and learner both compute in float32."""
    horizons: Horizons
    horizon_caps: Mapping[str, int]
    """Of each environment that has one, whatever the schedule allows."""
    imitation: Mapping[str, Any]
    """`[imitation]` as it is."""
    loss_factor: float = 1.0
    """What the weights of an optimizer step are multiplied by."""

    @property
    def estimator(self) -> str:
        """Value of `algorithm.name`."""
        return self.algorithm["name"]

    @property
    def imitates(self) -> bool:
        """Whether stored episodes are imitated, whose replies nobody sampled."""
        return self.estimator in ("imitation", "dpo")

    def coefficient(self, training_step: int) -> float:
        """Of the loss on demonstrations beside the groups that a training step plays or takes.

        It goes in a line from `coefficient` to `final_coefficient`. Runs that were stored before
        there was one have none.
        """
        first: float = self.imitation.get("coefficient", 0.0)
        steps: int = self.imitation.get("decay_training_steps", 0)
        if first == 0 or steps == 0:
            return first
        done = min(steps, training_step - 1)
        last: float = self.imitation["final_coefficient"]
        return (first * (steps - done) + last * done) / steps

    def of_demonstrations(self, training_step: int) -> Self:
        """What the demonstrations beside the groups were meant to be trained with."""
        settings = {
            "name": "imitation",
            "pass_k": None,
            "invalid_action_penalty": 0.0,
            "overlong_penalty": 0.0,
            "reward_kl_coefficient": 0.0,
            "reward_shaping": None,
        }
        return replace(
            self,
            algorithm=_Stored({**self.algorithm, **settings}),
            loss_factor=self.coefficient(training_step),
        )

    @property
    def no_definition(self) -> str | None:
        """Why advantages cannot be computed independently of the trainer; None if they can."""
        if self.estimator in DEFINITIONS:
            return None
        if ":" in self.estimator:
            return f"not audited: own estimator {self.estimator}"
        return f"no definition of algorithm.name = {self.estimator!r} here"

    @property
    def purposes(self) -> tuple[str, ...]:
        """Those that have a denominator of their own in the loss."""
        return (*self.purpose_shares,) or (ACT,)

    def counted_as(self, purpose: str) -> str:
        """The one of `purposes` that a call's tokens are weighed with."""
        return purpose if purpose in self.purpose_shares else ACT

    @property
    def smallest_group(self) -> int:
        """Fewest episodes that can be credited; a group with fewer is left out."""
        if self._definition is None:
            return 2  # what the trainer holds an estimator of the user's own to
        return max(self._definition.smallest_group, self.algorithm["pass_k"] or 0)

    @property
    def has_critic(self) -> bool:
        """Whether advantages are measured from a critic's values."""
        return self._definition is not None and self._definition.has_critic

    @property
    def credits_tokens(self) -> bool:
        """Whether the critic has a value, and an advantage, for each token."""
        return self.has_critic and self.algorithm["gae_level"] == "token"

    @property
    def compares_training_step(self) -> bool:
        """Whether advantages are compared over all the training step's episodes."""
        return self._definition is not None and self._definition.compares_training_step

    def trains_policy(self, training_step: int) -> bool:
        """Whether the policy learns in a training step, and not the critic alone."""
        return training_step > self.critic_warmup

    def policy_version(self, training_step: int) -> int:
        """Optimizer steps of the policy that are done when a training step begins."""
        return max(0, training_step - 1 - self.critic_warmup) * self.optimizer_steps

    @property
    def reads_final_anchors(self) -> bool:
        """Whether the state that an episode ended in tells what its last step was worth."""
        return self._definition is not None and self._definition.reads_final_anchors

    @property
    def compares_pairs(self) -> bool:
        """Whether advantages follow from how likely episodes are to policy and reference."""
        return self._definition is not None and self._definition.compares_pairs

    @property
    def compares_steps(self) -> bool:
        """Whether the pairs are of single steps."""
        return self.compares_pairs and self.algorithm["pairs"] == "steps"

    @property
    def needs_greedy_episode(self) -> bool:
        """Whether a group is compared with a greedy episode of its task."""
        return self._definition is not None and self._definition.needs_greedy_episode

    @property
    def _definition(self) -> Definition | None:
        return DEFINITIONS.get(self.estimator)

    @property
    def rewards_follow(self) -> bool:
        """Whether shaped rewards follow from what the store has of the episodes."""
        settings = self.algorithm
        return settings["reward_shaping"] is None and settings["reward_kl_coefficient"] == 0

    @property
    def chooses(self) -> bool:
        """Whether more groups may be played than an update takes."""
        return self.dynamic_sampling or self.extra_tasks > 0

    def num_updates(self, num_groups: int) -> int:
        """Optimizer steps of an update of so many groups; each takes one group at least."""
        return min(self.optimizer_steps, num_groups)

    def optimizer_step_of(self, place: int, *, num_groups: int) -> int:
        """0-based optimizer step that the group at `place` of an update belongs to."""
        return place * self.num_updates(num_groups) // num_groups

    @classmethod
    def from_json(cls, config_json: str, *, run_id: str) -> Self:
        """The intent behind a run's resolved configuration.

        Raises:
            StoreError: If a setting is missing that decides what is trained.
        """
        try:
            config: Mapping[str, Any] = json.loads(config_json)
            rollout, loss = config["rollout"], config["loss"]
            growth = config["horizon_schedule"]
            of_pairs = PAIR_SETTINGS if config["algorithm"].get("name") == "dpo" else ()
            return cls(
                algorithm=_Stored(
                    config["algorithm"] | {name: config["imitation"][name] for name in of_pairs}
                ),
                purpose_shares=loss.get("purposes", {}),
                critic_warmup=config["critic"]["warmup_training_steps"],
                reads_every_row=loss["kl_coefficient"] > 0 or loss["entropy_coefficient"] > 0,
                dynamic_sampling=config["sampling"]["dynamic"],
                max_refills=config["sampling"]["max_refills"],
                extra_tasks=config["sampling"]["extra_tasks"],
                tasks_per_training_step=config["tasks_per_training_step"],
                group_size=rollout["group_size"],
                plays_ahead=config["trainer"]["mode"] != "sync",
                max_staleness=config["trainer"]["max_staleness"],
                optimizer_steps=config["optimizer"]["optimizer_steps_per_training_step"],
                temperature=rollout["temperature"],
                rows=config["optimizer"]["rows"],
                max_row_tokens=config["optimizer"]["max_row_tokens"],
                top_p=rollout["top_p"],
                exact_engine=config["model"]["dtype"] == "float32"
                and config["model"]["engine_dtype"] == "float32",
                horizons=Horizons(
                    kind=growth["kind"],
                    final=rollout["horizon"],
                    stages=tuple(growth["stages"]),
                    training_steps_per_stage=growth["training_steps_per_stage"],
                    start=growth["start"],
                    end_training_step=growth["end_training_step"],
                    success_threshold=growth["success_threshold"],
                    success_window=growth["success_window"],
                ),
                # a run of one environment has no such list, and no cap
                horizon_caps={
                    entry["id"]: entry["horizon"]
                    for entry in config.get("environments", ())
                    if entry["horizon"] is not None
                },
                imitation=config.get("imitation", {}),
            )
        except KeyError as error:
            raise StoreError(
                f"the configuration of run {run_id!r} in the store has no {error}{NOT_OURS}"
            ) from error
