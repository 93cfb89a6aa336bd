"""Rules about credit: returns-to-go, both parts of an advantage, and how they are put together."""

from collections.abc import Iterator

from longhaul_core.audit.evidence import (
    LOGPROB_ROUNDING,
    AuditedEpisode,
    Evidence,
    StepKey,
    key_of,
)
from longhaul_core.audit.formulas import Credit, returns_to_go
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules, each_step, far
from longhaul_core.audit.tables import CallNumbers

__all__ = ["RULES"]

RULES = Rules()


def _credited(evidence: Evidence, tally: Tally) -> Iterator[tuple[AuditedEpisode, Credit]]:
    """Trained episodes with the credit that they should have."""
    if evidence.intent.no_definition is not None:
        tally.skip(evidence.intent.no_definition, len(evidence.trained))
        return
    meant = {episode.numbers.episode_id for episode in evidence.meant}
    for episode in evidence.trained:
        episode_id = episode.numbers.episode_id
        if episode_id in evidence.credit:
            yield episode, evidence.credit[episode_id]
        elif episode_id in meant:
            tally.skip(evidence.uncreditable[episode_id])


@RULES.add("shaped_reward", "returns are made of the reward less the penalties that lower them")
def check_shaped_reward(evidence: Evidence, tally: Tally) -> None:
    """A shaped reward is the environment's less what lowers returns, or the run's own shape."""
    unknown = _why_rewards_do_not_follow(evidence.intent)
    for episode in evidence.trained:
        if not episode.complete:
            tally.skip("the episode's steps are not all there", len(episode.steps))
            continue
        expected = evidence.penalised(episode)
        for step, value in zip(episode.steps, expected, strict=True):
            if unknown and step.shaped_reward is not None:
                tally.skip(unknown)
                continue
            tally.checked()
            if far(step.shaped_reward, value, 1e-9):
                tally.found(
                    step.shaped_reward,
                    step.episode_id,
                    step.step_index,
                    expected="a number" if unknown else value,
                )


def _why_rewards_do_not_follow(intent: Intent) -> str:
    shaping = intent.algorithm["reward_shaping"]
    if shaping is not None:
        return f"algorithm.reward_shaping = {shaping!r} is a function of the run's"
    if intent.algorithm["reward_kl_coefficient"] > 0:
        return (
            "algorithm.reward_kl_coefficient > 0: the divergence in the reward needs reference "
            "logprobs, which the store does not have"
        )
    return ""


def _returns_to_go(
    evidence: Evidence, tally: Tally
) -> Iterator[tuple[AuditedEpisode, list[float]]]:
    for episode in evidence.trained:
        if episode.complete:
            discount = evidence.intent.algorithm["discount"]
            yield episode, returns_to_go(evidence.rewards(episode), discount)
        else:
            tally.skip("the episode's steps are not all there", len(episode.steps))


RULES.add("return_to_go", "returns-to-go add up the shaped rewards")(
    each_step(
        lambda step: step.return_to_go,
        _returns_to_go,
        lambda evidence: 1e-9 + 1e-3 * evidence.rounding,
    )
)


@RULES.add("episode_part", "the episode part follows its definition")
def check_episode_part(evidence: Evidence, tally: Tally) -> None:
    """The episode part is what the estimator's definition gives, over episodes that ended."""
    for episode, credit in _credited(evidence, tally):
        tally.checked()
        stored = [episode.numbers.episode_advantage, *(s.episode_advantage for s in episode.steps)]
        wrong = [v for v in stored if far(v, credit.episode_part, evidence.rounding)]
        if wrong:
            tally.found(wrong[0], episode.numbers.episode_id, expected=credit.episode_part)


RULES.add("step_part", "the step part follows its definition")(
    each_step(
        lambda step: step.step_advantage,
        lambda evidence, tally: (
            (episode, credit.step_parts) for episode, credit in _credited(evidence, tally)
        ),
    )
)


RULES.add("advantage", "the advantage is both parts put together")(
    each_step(
        lambda step: step.advantage,
        lambda evidence, tally: (
            (episode, credit.advantages) for episode, credit in _credited(evidence, tally)
        ),
    )
)


@RULES.add(
    "call_advantage",
    "a call has its share of the advantage of the step that credits it, if it is trained",
)
def check_call_advantage(evidence: Evidence, tally: Tally) -> None:
    """Each trained call has its share of the advantage of its step, or of the next one.

    No other call has one.
    """
    for episode in evidence.trained:
        for call in episode.calls:
            step = evidence.steps.get(_crediting_step(evidence, episode, call))
            if step is None:
                continue  # found by steps
            tally.checked()
            if not call.trained:
                wrong = call.advantage is not None
                expected = None
            else:
                tokens = evidence.token_credit.get(key_of(call))
                by_token = tokens is not None and tokens.advantages
                if tokens is not None and by_token:  # each token is held to its own elsewhere
                    expected = sum(tokens.advantages) / len(tokens.advantages)
                else:
                    expected = call.credit_share * (step.advantage or 0.0)
                # The tokens' are kept in float32.
                rounding = 1e-6 * max(map(abs, tokens.advantages)) if tokens and by_token else 1e-12
                wrong = far(call.advantage, expected, rounding)
            if wrong:
                tally.found(
                    call.advantage,
                    *key_of(call),
                    expected="none: the call is not trained"
                    if expected is None
                    else f"{expected:.9g}, {call.credit_share:g} of the advantage of "
                    f"step {step.step_index}",
                )


def _crediting_step(evidence: Evidence, episode: AuditedEpisode, call: CallNumbers) -> StepKey:
    """Whose advantage a call has a share of.

    A memory's reply is read by the step after it. Where there is none, or the step's own advantage
    is measured up to a critic's value of what was read, it is the step of the call.
    """
    is_read_later = (
        call.credited_by == "next_step"
        and not evidence.intent.has_critic
        and call.step_index + 1 < episode.numbers.num_steps
    )
    return call.episode_id, call.step_index + 1 if is_read_later else call.step_index


@RULES.add("reference_logprobs", "calls of compared pairs have their logprob under the reference")
def check_reference(evidence: Evidence, tally: Tally) -> None:
    """Trained calls have a logprob under the reference if pairs are compared; other calls none."""
    pairs = evidence.intent.compares_pairs
    for episode in evidence.trained:
        for call in episode.calls:
            tally.checked()
            found, due = call.reference_logprob_sum, pairs and call.trained
            most = LOGPROB_ROUNDING * (call.num_action_tokens or 0)
            if (found is not None) != due or (found is not None and not found <= most):
                tally.found(
                    f"a reference logprob of {found} in all",
                    *key_of(call),
                    expected="a number that is not above 0" if due else "none",
                )


@RULES.add("silent_zero", "nothing that has an advantage is trained with 0")
def check_silent_zero(evidence: Evidence, tally: Tally) -> None:
    """Nothing that has an advantage is trained with 0."""
    for episode, credit in _credited(evidence, tally):
        tally.checked(len(episode.steps))
        for step, expected, num_tokens in zip(
            episode.steps, credit.advantages, episode.num_action_tokens, strict=True
        ):
            if abs(expected) <= 10 * evidence.rounding or num_tokens == 0:
                continue
            zeros = [
                name
                for name, value in (("advantage", step.advantage), ("weight", step.loss_weight))
                if not value
            ]
            if zeros:
                tally.found(
                    f"{' and '.join(zeros)} 0",
                    step.episode_id,
                    step.step_index,
                    expected=f"an advantage of {expected:.9g} with its weight",
                )
