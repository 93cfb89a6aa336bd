"""Warnings that a run is about to learn nothing, or to unlearn, while it can still be stopped."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "MAX_INVALID_RATE",
    "MAX_LOGPROB_DIFFERENCE",
    "MAX_SHARE_WITHOUT_SIGNAL",
    "METRICS",
    "MIN_ENTROPY",
    "MIN_SIGHT",
    "HealthWarning",
    "warnings_of",
]

MAX_INVALID_RATE = 0.5
MIN_ENTROPY = 0.005
"""Nats per token: below it a group's episodes are nearly the same."""
MAX_LOGPROB_DIFFERENCE = 0.1
"""Mean over tokens, in nats; bfloat16 kernels differed by 0.04 in the default run."""
MAX_SHARE_WITHOUT_SIGNAL = 0.8
MIN_SIGHT = 1e-5
"""Mean over tokens, in nats: exactly 0 where no picture is read. Boards of Sokoban, which differ in
few tiles, moved a random model of 0.4 million parameters by 2e-4."""

METRICS = (
    "groups/without_signal",
    "groups/count",
    "episodes/invalid_action_rate",
    "actor/entropy",
    "agreement/logprob_difference_mean",
    "sight/logprob_change_mean",
)
"""The metrics of a training step that warnings are made of."""


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """Something that a person should look at."""

    metric: str
    """The metric that says so; curves have it under this name."""
    value: float
    limit: float
    message: str
    """What is wrong, by which number."""
    advice: str
    """What to do."""


def warnings_of(metrics: Mapping[str, float]) -> list[HealthWarning]:
    """What a person should look at after a training step; empty if nothing.

    Args:
        metrics: Of one training step. What is missing or not a number is not judged.
    """
    count = metrics.get("groups/count", 0.0)
    share = metrics.get("groups/without_signal", 0.0) / count if count else 0.0
    invalid = metrics.get("episodes/invalid_action_rate", 0.0)
    entropy = metrics.get("actor/entropy", float("inf"))
    # Not measured where every episode was sampled by earlier weights.
    difference = metrics.get("agreement/logprob_difference_mean", 0.0)
    # Not measured where nobody was shown two different pictures.
    change = metrics.get("sight/logprob_change_mean", float("inf"))
    judged = (
        (
            share > MAX_SHARE_WITHOUT_SIGNAL,
            HealthWarning(
                "groups/without_signal",
                share,
                MAX_SHARE_WITHOUT_SIGNAL,
                f"{share:.0%} of the groups gave no signal (all episodes alike)",
                "tasks are too easy or too hard, or the policy has collapsed: look at the groups, "
                "and at the success rate of each task",
            ),
        ),
        (
            invalid > MAX_INVALID_RATE,
            HealthWarning(
                "episodes/invalid_action_rate",
                invalid,
                MAX_INVALID_RATE,
                f"{invalid:.0%} of the actions are invalid",
                "check actions.format, prompt.reply_prefix and rollout.max_reply_tokens",
            ),
        ),
        (
            entropy < MIN_ENTROPY,
            HealthWarning(
                "actor/entropy",
                entropy,
                MIN_ENTROPY,
                f"entropy is {entropy:.2g} nats per token; the policy hardly explores",
                "lower optimizer.learning_rate or raise loss.entropy_coefficient",
            ),
        ),
        (
            difference > MAX_LOGPROB_DIFFERENCE,
            HealthWarning(
                "agreement/logprob_difference_mean",
                difference,
                MAX_LOGPROB_DIFFERENCE,
                f"sampler and learner differ by {difference:.2g} nats per token",
                "their weights or their arithmetic are not the same: run `trainer audit`, and "
                "compare model.dtype with model.engine_dtype",
            ),
        ),
        (
            change < MIN_SIGHT,
            HealthWarning(
                "sight/logprob_change_mean",
                change,
                MIN_SIGHT,
                f"other pictures move replies by {change:.2g} nats per token; the policy is blind",
                'compare its success with that of model.pictures = "grey", and look whether the '
                "text alone, or a narrow policy, decides the actions",
            ),
        ),
    )
    return [warning for is_wrong, warning in judged if is_wrong]
