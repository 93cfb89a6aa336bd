"""Rules about the tokens that were trained: sampled, all of them, and read alike by both sides."""

import json
import math
from collections import Counter
from collections.abc import Iterator

from longhaul_core.audit.evidence import Evidence, ReplyFacts, key_of
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules
from longhaul_core.audit.tables import CallNumbers

__all__ = ["RULES"]

RULES = Rules()

EXACT_AGREEMENT = 1e-3
"""Largest mean of |behavior - policy logprob| over a reply's tokens, in nats per token, where
engine and learner both compute in float32; they differed by 1e-5 in the default run."""
ROUGH_AGREEMENT = 0.5
"""The same where one of them computes in bfloat16, whose kernels differ by some 0.04."""

STALE = "sampled by other weights than the update began with"
OWN_SAMPLING = "sampled by settings of its own, under which sampler and learner differ"
IMITATED = "imitated: nobody sampled these replies"
PRUNED = "its tokens were pruned from the store"


def _kept(evidence: Evidence, tally: Tally) -> Iterator[ReplyFacts]:
    sampled = [reply for reply in evidence.replies if reply.num_action_tokens is not None]
    for reply in sampled:
        if not reply.pruned:
            yield reply
    tally.skip(PRUNED, sum(reply.pruned for reply in sampled))


@RULES.add("mask", "the steps of trained episodes are trained, and no others")
def check_mask(evidence: Evidence, tally: Tally) -> None:
    """Every step of a trained episode is trained, and none of another one."""
    for episode in evidence.episodes:
        tally.checked(len(episode.steps))
        for step in episode.steps:
            if step.trained != episode.numbers.trained:
                tally.found(
                    "a trained step" if step.trained else "a step that is not trained",
                    step.episode_id,
                    step.step_index,
                    expected="as its episode, " + ("" if not step.trained else "not ") + "trained",
                )


@RULES.add("tokens", "each trained token has one logprob of the engine and one of the learner")
def check_tokens(evidence: Evidence, tally: Tally) -> None:
    """Each trained token has a logprob of the engine that sampled it and one of the learner.

    Nobody sampled a token that is imitated.
    """
    sampled = not evidence.intent.imitates
    for reply in evidence.replies:
        if reply.num_action_tokens is None:
            tally.checked()
            tally.found(
                "a call without tokens that is trained",
                *key_of(reply),
                expected="a call that our engine sampled",
            )
    for reply in _kept(evidence, tally):
        tally.checked(reply.num_action_tokens or 0)
        expected = (reply.num_action_tokens if sampled else 0, reply.num_action_tokens)
        if (reply.num_behavior_logprobs, reply.num_policy_logprobs) != expected:
            policy = "no" if reply.num_policy_logprobs < 0 else str(reply.num_policy_logprobs)
            tally.found(
                f"{reply.num_behavior_logprobs} behavior logprobs, {policy} policy logprobs",
                *key_of(reply),
                expected=f"{expected[0]} and {expected[1]}",
            )


@RULES.add("logprobs", "logprobs are finite and not above 0")
def check_logprobs(evidence: Evidence, tally: Tally) -> None:
    """Logprobs are finite and not above 0, but for rounding."""
    for reply in _kept(evidence, tally):
        tally.checked(reply.num_behavior_logprobs + max(0, reply.num_policy_logprobs))
        if reply.num_wrong_logprobs:
            tally.found(
                f"{reply.num_wrong_logprobs} logprobs that are not finite or above 0",
                *key_of(reply),
                expected="none",
            )


@RULES.add("logprob_agreement", "engine and learner found each reply about as likely")
def check_agreement(evidence: Evidence, tally: Tally) -> None:
    """Engine and learner found a reply about as likely: the same weights read the same tokens."""
    if evidence.intent.imitates:
        tally.skip(IMITATED, len(evidence.replies))
        return
    if evidence.intent.top_p < 1:
        tally.skip(
            f"rollout.top_p = {evidence.intent.top_p:g}: sampler and learner differ by design",
            len(evidence.replies),
        )
        return
    bound = EXACT_AGREEMENT if evidence.intent.exact_engine else ROUGH_AGREEMENT
    largest = 0.0
    num_stale = num_own = 0
    for reply in _kept(evidence, tally):
        if evidence.calls[key_of(reply)].policy_version != evidence.first_version:
            num_stale += 1
            continue
        if math.isnan(reply.mean_difference):
            continue  # the lengths or numbers are wrong, and have a finding of their own
        largest = max(largest, reply.max_difference)
        if _differs_by_design(evidence.calls[key_of(reply)], evidence.intent):
            num_own += 1
            continue
        tally.checked()
        if reply.mean_difference > bound:
            tally.found(
                f"{reply.mean_difference:.3g} nats per token between behavior and policy logprobs",
                *key_of(reply),
                expected=f"at most {bound:g}",
            )
    tally.skip(STALE, num_stale)
    tally.skip(OWN_SAMPLING, num_own)
    _check_measured_agreement(evidence, tally, largest)


def _differs_by_design(call: CallNumbers, intent: Intent) -> bool:
    """Whether its own sampling settings let the learner find its reply more or less likely."""
    if call.sampling_json is None:
        return False
    sampling = json.loads(call.sampling_json)
    return (
        sampling["temperature"] != intent.temperature
        or sampling["top_p"] < 1
        or bool(sampling["altered"])
    )


@RULES.add("end_tokens", "imitated replies end with the end token, unless they were cut")
def check_end_tokens(evidence: Evidence, tally: Tally) -> None:
    """Imitated replies that were not cut end with one token, which is no part of their text.

    Without it the policy would not learn to end its replies; of a sampled reply the engine says so.
    """
    ends = Counter(
        reply.last_token
        for key, reply in evidence.imitated.items()
        if evidence.calls[key].finish_reason != "length" and reply.last_token is not None
    )
    end = ends.most_common(1)[0][0] if ends else None
    for key, reply in evidence.imitated.items():
        call = evidence.calls[key]
        if reply.last_token is None or reply.last_piece is None or reply.text is None:
            tally.skip(PRUNED)
            continue
        tally.checked()
        cut = call.finish_reason == "length"
        in_text = bool(reply.last_piece) and reply.text.endswith(reply.last_piece)
        if (reply.last_token != end) is not cut or (in_text and not cut):
            tally.found(
                f"a reply that ends with token {reply.last_token}, {reply.last_piece!r}, and was "
                f"{'' if cut else 'not '}cut",
                *key_of(call),
                expected="no end token" if cut else "the end token, which is no part of its text",
            )


@RULES.add("altered_sampling", "no trained call was sampled by settings that falsify its logprobs")
def check_altered_sampling(evidence: Evidence, tally: Tally) -> None:
    """No trained call was sampled by settings under which its logprobs are not the policy's."""
    for call in evidence.calls.values():
        if not evidence.in_loss(call):
            continue
        tally.checked()
        altered: dict[str, str] = {}
        if call.sampling_json is not None:
            altered = json.loads(call.sampling_json)["altered"]
        if altered:
            tally.found(
                "sampled with " + ", ".join(f"{name} = {altered[name]}" for name in altered),
                *key_of(call),
                expected="no setting under which its logprobs are not the policy's",
            )


@RULES.add("unread_pictures", "trained calls of programs were shown the pictures that they have")
def check_unread_pictures(evidence: Evidence, tally: Tally) -> None:
    """The prompt of a trained call of a program has a place for each picture of its messages.

    Without one the model was not shown it, as by a model of text, for which the gateway refuses the
    call. An episode loop leaves pictures out for such a model, by design.
    """
    with_pictures = {key_of(one): one for one in evidence.pictures}
    for key, call in evidence.calls.items():
        if call.continuation is None or not evidence.in_loss(call):
            continue
        pictures = with_pictures.get(key)
        if pictures is not None and pictures.removed:
            tally.skip("its pictures, if it had any, were removed by the run's retention")
            continue
        number = 0 if pictures is None else len(pictures.prompt)
        places = evidence.picture_places.get(key) if number else 0
        if places is None:
            tally.skip(PRUNED)
            continue
        tally.checked()
        if places != number:
            tally.found(
                f"{number} {'picture' if number == 1 else 'pictures'} in its messages, and places "
                f"for {places} in its prompt's tokens",
                *key_of(call),
                expected="a place for each: what has none is not shown to the model",
            )


def _check_measured_agreement(evidence: Evidence, tally: Tally, largest: float) -> None:
    """What the store's logprobs differ by is what the trainer measured before it updated."""
    measured = evidence.metrics.get("agreement/logprob_difference_max")
    if measured is None or not evidence.replies or any(r.pruned for r in evidence.replies):
        return
    tally.checked()
    if abs(measured - largest) > 1e-6 + 1e-3 * measured:
        tally.found(
            f"logprobs in the store that differ by up to {largest:.3g} nats",
            expected=f"{measured:.3g}, the trainer's agreement/logprob_difference_max",
        )


@RULES.add("pictures", "calls were shown pictures of this or earlier steps, or of tools")
def check_pictures(evidence: Evidence, tally: Tally) -> None:
    """A call was shown the pictures of its own and earlier observations, and those of tools.

    What a program shows in a call that is not trained need be in no observation, since the call
    begins no step; later calls may go on from it.
    """
    of_program = {
        key_of(call)
        for episode in (*evidence.episodes, *evidence.greedy.episodes)
        for call in episode.calls
        if call.continuation is not None and not call.trained
    }
    episode_id = ""
    seen: set[str] = set()
    for call in evidence.pictures:
        if call.removed:
            tally.skip("its pictures, if it had any, were removed by the run's retention")
            continue
        if call.episode_id != episode_id:
            episode_id, seen = call.episode_id, set[str]()
        seen |= call.observed | call.from_tools
        if key_of(call) in of_program:
            seen |= call.shown
            continue
        tally.checked(len(call.shown))
        for stray in sorted(call.shown - seen):
            tally.found(
                f"picture {stray}",
                *key_of(call),
                expected="one of an observation of this or an earlier step, or of a tool's result",
            )
