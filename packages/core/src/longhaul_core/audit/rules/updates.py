"""Rules about optimizer steps and schedules: weights, versions, horizons."""

from collections.abc import Mapping, Sequence
from math import fsum

from longhaul_core.audit.evidence import Evidence, key_of
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules
from longhaul_core.audit.tables import CallNumbers

__all__ = ["RULES"]

RULES = Rules()

STALE = "stale"
"""Reason of a group that was discarded because its weights are too old."""

HORIZON_REACHED = "horizon_reached"
"""Stop reason of an episode that was cut at its horizon."""


@RULES.add("loss_weights", "each token weighs what the loss unit and its purpose's share give it")
def check_loss_weights(evidence: Evidence, tally: Tally) -> None:
    """Each token weighs what `algorithm.loss_unit` and `[loss.purposes]` give it.

    In its optimizer step; a step has the mean over the tokens of its trained calls.
    """
    for episode in evidence.meant:
        expected = evidence.weights.get(episode.numbers.episode_id)
        if expected is None:
            tally.skip("steps of its optimizer step are not all there", len(episode.steps))
            continue
        if not episode.numbers.trained:
            continue  # found by trained_episodes
        tally.checked(len(episode.steps))
        for step, weights, calls in zip(
            episode.steps, expected, episode.trained_calls, strict=True
        ):
            weight = _mean_weight(evidence, weights, calls)
            if step.loss_weight is None or abs(step.loss_weight - weight) > 1e-9 * weight:
                tally.found(step.loss_weight, step.episode_id, step.step_index, expected=weight)
            for call in calls:
                tally.checked()
                of_purpose = weights[evidence.intent.counted_as(call.purpose)]
                found = call.loss_weight
                if found is None or abs(found - of_purpose) > 1e-9 * of_purpose:
                    tally.found(found, *key_of(call), expected=of_purpose)


def _mean_weight(
    evidence: Evidence, weights: Mapping[str, float], calls: Sequence[CallNumbers]
) -> float:
    """Over the tokens of a step: each has the weight of its call's purpose."""
    tokens = [(evidence.intent.counted_as(c.purpose), c.num_action_tokens or 0) for c in calls]
    whole = sum(count for _, count in tokens)
    if whole == 0:
        return 0.0
    return fsum(weights[purpose] * count for purpose, count in tokens) / whole


@RULES.add("loss_weight_sum", "the weights of an optimizer step add up")
def check_weight_sum(evidence: Evidence, tally: Tally) -> None:
    """The weights of all tokens of an optimizer step add up to 1, or as `fixed_token` defines."""
    for part, members in sorted(evidence.parts.items()):
        if not all(episode.complete for episode in members):
            tally.skip("steps of the optimizer step are not all there")
            continue
        tally.checked()
        found = fsum(
            (call.loss_weight or 0.0) * (call.num_action_tokens or 0)
            for episode in members
            for calls in episode.trained_calls
            for call in calls
        )
        expected = 1.0
        tokens_per_episode = evidence.intent.algorithm["tokens_per_episode"]
        if tokens_per_episode is not None:
            lengths = [sum(episode.num_action_tokens) for episode in members]
            mean_length = sum(lengths) / max(1, sum(length > 0 for length in lengths))
            expected = mean_length / tokens_per_episode
        expected *= evidence.intent.loss_factor
        if abs(found - expected) > 1e-6 * expected:
            tally.found(f"weights of {found:.9g} in optimizer step {part}", expected=expected)


@RULES.add("optimizer_step_of_episode", "an episode is in the optimizer step of its group")
def check_optimizer_step_of_episode(evidence: Evidence, tally: Tally) -> None:
    """An episode is in the optimizer step of its group, whole."""
    for episode in evidence.trained:
        tally.checked()
        expected = evidence.optimizer_step_of(episode)
        if episode.numbers.optimizer_step_index != expected:
            tally.found(
                f"optimizer step {episode.numbers.optimizer_step_index}",
                episode.numbers.episode_id,
                expected=f"optimizer step {expected}",
            )


@RULES.add("optimizer_steps", "a training step has as many optimizer steps as configured")
def check_optimizer_steps(evidence: Evidence, tally: Tally) -> None:
    """A training step has as many optimizer steps as configured."""
    learns = evidence.intent.trains_policy(evidence.training_step)
    expected = evidence.intent.num_updates(len(evidence.groups)) if learns else 0
    reported = evidence.metrics.get("actor/optimizer_steps")
    if reported is None:
        tally.skip("the training step left no metric actor/optimizer_steps")
    else:
        tally.checked()
        if reported != expected:
            tally.found(f"{reported:g} optimizer steps by the metric", expected=expected)
    if evidence.loss_inputs:
        tally.checked()
        done = {row.optimizer_step_index for row in evidence.loss_inputs}
        if done != set(range(expected)):
            tally.found(
                f"optimizer steps {sorted(done)} by what the loss read",
                expected=f"{expected}, numbered from 0",
            )


@RULES.add(
    "policy_version",
    "replies are sampled by the weights their update began with, or not much older ones",
)
def check_policy_version(evidence: Evidence, tally: Tally) -> None:
    """Replies are sampled by the weights that the update began with, or by not much older ones."""
    newest, updates = evidence.first_version, evidence.intent.optimizer_steps
    oldest = max(0, newest - evidence.intent.max_staleness * updates)
    allowed = range(oldest, newest + 1, updates)
    expected = f"policy version {newest}" + (f", or from {oldest} on" if oldest < newest else "")
    for episode in (*evidence.ended, *evidence.greedy.ended.values()):
        sampled = [call for call in episode.calls if call.policy_version is not None]
        tally.checked(len(sampled))
        for call in sampled:
            if call.policy_version not in allowed:
                tally.found(
                    f"policy version {call.policy_version}", *key_of(call), expected=expected
                )


@RULES.add("trained_in", "episodes are trained in the update that took their group, in time")
def check_trained_in(evidence: Evidence, tally: Tally) -> None:
    """Episodes are trained in the update that took their group, and groups are taken in time."""
    latest = evidence.training_step - evidence.intent.max_staleness
    for episode in evidence.episodes:
        tally.checked()
        numbers = episode.numbers
        if numbers.trained and numbers.trained_training_step != evidence.training_step:
            tally.found(
                f"trained in training step {numbers.trained_training_step}",
                numbers.episode_id,
                expected=f"training step {evidence.training_step}, which took its group",
            )
        if not latest <= numbers.played_training_step <= evidence.training_step:
            tally.found(
                f"played in training step {numbers.played_training_step}",
                numbers.episode_id,
                expected=f"training step {max(1, latest)} to {evidence.training_step}",
            )


@RULES.add("discarded", "discarded groups are untrained, and had a reason")
def check_discarded(evidence: Evidence, tally: Tally) -> None:
    """A discarded group is untrained, and too old if that is its reason."""
    for group in evidence.discarded:
        tally.checked()
        age = evidence.training_step - group.training_step
        name = f"group {group.group_index} of training step {group.training_step}"
        if group.num_trained:
            tally.found(
                f"{name}, discarded, with {group.num_trained} trained episodes",
                group.first_episode_id,
                expected="none",
            )
        if group.discard_reason == STALE and age <= evidence.intent.max_staleness:
            tally.found(
                f"{name}, discarded as stale after {age} training steps",
                group.first_episode_id,
                expected=f"kept for {evidence.intent.max_staleness}",
            )


@RULES.add("horizon", "episodes are as long as the schedule allows")
def check_horizon(evidence: Evidence, tally: Tally) -> None:
    """Episodes are played at the horizon of the schedule, also after a resume, and not beyond."""
    for episode in evidence.episodes:
        tally.checked()
        numbers = episode.numbers
        horizon = evidence.horizons[numbers.played_training_step - 1]
        horizon = min(horizon, evidence.intent.horizon_caps.get(numbers.environment, horizon))
        if numbers.horizon != horizon:
            tally.found(
                f"horizon {numbers.horizon}", numbers.episode_id, expected=f"horizon {horizon}"
            )
        elif numbers.num_steps > numbers.horizon or (
            numbers.stop_reason == HORIZON_REACHED and numbers.num_steps != numbers.horizon
        ):
            tally.found(
                f"{numbers.num_steps} steps, stopped by {numbers.stop_reason}",
                numbers.episode_id,
                expected=f"at most {numbers.horizon} steps, and so many if cut by the horizon",
            )
