"""What a run was meant to do, read from the configuration that the store keeps of it.

The configuration is read as plain JSON: the classes that wrote it are part of what is audited.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from longhaul_core.errors import StoreError

__all__ = ["Horizons", "Intent"]


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

    estimator: str
    discount: float
    scale_by_std: bool
    step_advantage_weight: float
    episode_advantage_weight: float
    statistics: str
    anchor_similarity: float | None
    distance_decay: float
    distance_form: str
    """proximity or progress."""
    history_length: int
    history_weight_exponent: float
    whiten: str
    gae_level: str
    gae_lambda: float
    critic_warmup: int
    """Training steps at the beginning in which the critic alone learns."""
    pass_k: int | None
    loss_unit: str
    tokens_per_episode: int | None
    invalid_action_penalty: float
    overlong_penalty: float
    overlong_start_tokens: int | None
    overlong_end_tokens: int | None
    overlong_unit: str
    reward_kl_coefficient: float
    reward_shaping: str | None
    """A function of the run's own; what it says of a step is known from the store alone."""
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
    plays_ahead: bool
    """Groups may be taken by a later training step than the one that asked for them, whichever
    comes first."""
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

    @property
    def smallest_group(self) -> int:
        """Fewest episodes that can be credited; a group with fewer is left out."""
        alone = self.estimator in ("remax", "gae", "reinforce_plus_plus")
        return 1 if alone else max(2, self.pass_k or 0)

    @property
    def has_critic(self) -> bool:
        """Whether advantages are measured from a critic's values."""
        return self.estimator == "gae"

    @property
    def credits_the_training_step(self) -> bool:
        """Whether advantages are compared over all the training step's episodes."""
        return self.has_critic or self.estimator.startswith("reinforce_plus_plus")

    def trains_policy(self, training_step: int) -> bool:
        """Whether the policy learns in a training step, and not the critic alone."""
        return training_step > self.critic_warmup

    def policy_version(self, training_step: int) -> int:
        """Optimizer steps of the policy that are done when a training step begins."""
        return max(0, training_step - 1 - self.critic_warmup) * self.optimizer_steps

    @property
    def reads_final_anchors(self) -> bool:
        """Whether the state that an episode ended in tells what its last step was worth."""
        return self.estimator == "graphgpo"

    @property
    def needs_greedy_episode(self) -> bool:
        """Whether a group is compared with a greedy episode of its task."""
        return self.estimator == "remax"

    @property
    def rewards_follow(self) -> bool:
        """Whether shaped rewards follow from what the store has of the episodes."""
        return self.reward_shaping is None and self.reward_kl_coefficient == 0

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
            algorithm, rollout = config["algorithm"], config["rollout"]
            loss, growth = config["loss"], config["horizon_schedule"]
            return cls(
                estimator=algorithm["name"],
                discount=algorithm["discount"],
                scale_by_std=algorithm["scale_by_std"],
                step_advantage_weight=algorithm["step_advantage_weight"],
                episode_advantage_weight=algorithm["episode_advantage_weight"],
                statistics=algorithm["statistics"],
                anchor_similarity=algorithm["anchor_similarity"],
                distance_decay=algorithm["distance_decay"],
                distance_form=algorithm["distance_form"],
                history_length=algorithm["history_length"],
                history_weight_exponent=algorithm["history_weight_exponent"],
                whiten=algorithm["whiten"],
                gae_level=algorithm["gae_level"],
                gae_lambda=algorithm["gae_lambda"],
                critic_warmup=config["critic"]["warmup_training_steps"],
                pass_k=algorithm["pass_k"],
                loss_unit=algorithm["loss_unit"],
                tokens_per_episode=algorithm["tokens_per_episode"],
                invalid_action_penalty=algorithm["invalid_action_penalty"],
                overlong_penalty=algorithm["overlong_penalty"],
                overlong_start_tokens=algorithm["overlong_start_tokens"],
                overlong_end_tokens=algorithm["overlong_end_tokens"],
                overlong_unit=algorithm["overlong_unit"],
                reward_kl_coefficient=algorithm["reward_kl_coefficient"],
                reward_shaping=algorithm["reward_shaping"],
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
            )
        except KeyError as error:
            raise StoreError(
                f"the configuration of run {run_id!r} in the store has no {error}: it was not "
                "written by a training of this version, so there is nothing to hold the run to"
            ) from error
