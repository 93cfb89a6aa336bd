"""Warnings that a run is about to learn nothing, or to unlearn, while it can still be stopped."""

from __future__ import annotations

from collections.abc import Mapping

MAX_INVALID_RATE = 0.5
MIN_ENTROPY = 0.005
"""Nats per token: below it a group's episodes are nearly the same."""
MAX_LOGPROB_DIFFERENCE = 0.1
"""Mean over tokens, in nats; bfloat16 kernels differed by 0.04 in the default run."""
MAX_SHARE_WITHOUT_SIGNAL = 0.8


def warnings_of(metrics: Mapping[str, float]) -> list[str]:
    """What a person should look at after a training step; empty if nothing."""
    found: list[str] = []
    share = metrics["groups/without_signal"] / metrics["groups/count"]
    if share > MAX_SHARE_WITHOUT_SIGNAL:
        found.append(
            f"more than {MAX_SHARE_WITHOUT_SIGNAL:.0%} of the groups gave no signal (all episodes "
            "alike); tasks are too easy or too hard, or the policy has collapsed"
        )
    if metrics["episodes/invalid_action_rate"] > MAX_INVALID_RATE:
        found.append(
            f"more than {MAX_INVALID_RATE:.0%} of the actions are invalid; "
            "check actions.format, prompt.reply_prefix and rollout.max_reply_tokens"
        )
    if metrics["actor/entropy"] < MIN_ENTROPY:
        found.append(
            f"entropy is below {MIN_ENTROPY} nats per token; the policy hardly explores, "
            "lower optimizer.learning_rate or raise loss.entropy_coefficient"
        )
    # Not measured where every episode was sampled by earlier weights.
    if metrics.get("agreement/logprob_difference_mean", 0.0) > MAX_LOGPROB_DIFFERENCE:
        found.append(
            f"sampler and learner differ by more than {MAX_LOGPROB_DIFFERENCE} nats per token; "
            "their weights or their arithmetic are not the same"
        )
    return found
