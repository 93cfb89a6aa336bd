"""Rules about what the loss function read: all that was meant, once, and nothing else.

The learner's processes leave one row for each time that a call went through the loss. Calls
whose advantage is exactly 0 may be left out of it where the loss has no other term.
"""

from collections import Counter
from collections.abc import Iterator

from longhaul_core.audit.evidence import Evidence, key_of
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rule
from longhaul_core.audit.tables import CallNumbers, LossInput

__all__ = ["RULES"]

NOT_RECORDED = "the run recorded nothing of what the loss read"


def _pairs(evidence: Evidence, tally: Tally) -> Iterator[tuple[LossInput, CallNumbers]]:
    """What was read of calls that were to be trained, beside what was meant."""
    if not _recorded(evidence, tally):
        return
    for row in evidence.loss_inputs:
        call = evidence.calls.get(key_of(row))
        if call is not None and evidence.in_loss(call):
            yield row, call


def _recorded(evidence: Evidence, tally: Tally) -> bool:
    if not evidence.loss_inputs_recorded:
        tally.skip(NOT_RECORDED, len(evidence.replies))
    return evidence.loss_inputs_recorded


def _is(found: float | None, meant: float | None) -> bool:
    """Equal but for the rounding of float32, in which the loss computes."""
    return found is not None and meant is not None and abs(found - meant) <= 1e-6 * abs(meant)


def _range(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.9g} to {high:.9g}"


def check_tokens(evidence: Evidence, tally: Tally) -> None:
    """All tokens of a reply were in the loss, and no others of its row."""
    for row, call in _pairs(evidence, tally):
        tally.checked()
        if row.num_tokens != call.num_action_tokens:
            tally.found(
                f"{row.num_tokens} tokens in the loss",
                expected=f"the reply's {call.num_action_tokens}",
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


def check_advantage(evidence: Evidence, tally: Tally) -> None:
    """Each token was in the loss with its call's advantage."""
    for row, call in _pairs(evidence, tally):
        if row.num_tokens == 0:
            continue
        tally.checked()
        low, high = evidence.read_advantages(call)
        if not (_is(row.advantage_low, low) and _is(row.advantage_high, high)):
            tally.found(
                f"advantages {_range(row.advantage_low, row.advantage_high)}",
                expected=call.advantage if low == high else _range(low, high),
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


def check_weight(evidence: Evidence, tally: Tally) -> None:
    """Each token was in the loss with its call's weight."""
    for row, call in _pairs(evidence, tally):
        if row.num_tokens == 0:
            continue
        tally.checked()
        if not (_is(row.weight_low, call.loss_weight) and _is(row.weight_high, call.loss_weight)):
            tally.found(
                f"weights {_range(row.weight_low, row.weight_high)}",
                expected=call.loss_weight,
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


def check_logprobs(evidence: Evidence, tally: Tally) -> None:
    """The tokens in the loss are the reply's: their old logprobs add up to the same."""
    sums = evidence.policy_sums
    for row, call in _pairs(evidence, tally):
        key = key_of(row)
        if key not in sums:
            tally.skip("its tokens were pruned from the store")
            continue
        tally.checked()
        if abs(row.old_logprob_sum - sums[key]) > 1e-5 * (
            (call.num_action_tokens or 0) + abs(sums[key])
        ):
            tally.found(
                f"old logprobs of {row.old_logprob_sum:.9g} in all",
                expected=f"{sums[key]:.9g}, the sum of the reply's policy logprobs",
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


def check_once(evidence: Evidence, tally: Tally) -> None:
    """A call is read once in a training step, in the optimizer step of its episode."""
    episodes = {episode.numbers.episode_id: episode.numbers for episode in evidence.episodes}
    times = Counter(key_of(row) for row, _ in _pairs(evidence, tally))
    tally.checked(len(times))
    for (episode_id, step_index, call_index), number in times.items():
        if number > 1:
            tally.found(
                f"read {number} times",
                expected="once",
                training_step=evidence.training_step,
                episode_id=episode_id,
                step_index=step_index,
                call_index=call_index,
            )
    for row in evidence.loss_inputs:
        episode = episodes.get(row.episode_id)
        if episode is None or episode.optimizer_step_index is None:
            continue  # found by loss_input_nothing_else
        meant = (evidence.training_step, episode.optimizer_step_index)
        if (row.training_step, row.optimizer_step_index) != meant:
            tally.found(
                f"read in optimizer step {row.optimizer_step_index} of training step "
                f"{row.training_step}",
                expected=f"optimizer step {meant[1]} of training step {meant[0]}",
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


def check_all(evidence: Evidence, tally: Tally) -> None:
    """Every trained call that has an advantage was read."""
    if not _recorded(evidence, tally):
        return
    read = {key_of(row) for row in evidence.loss_inputs}
    for episode in evidence.trained:
        for call in (call for calls in episode.trained_calls for call in calls):
            tally.checked()
            due = evidence.intent.reads_every_row or any(evidence.read_advantages(call))
            due = due and evidence.in_loss(call) and call.num_action_tokens
            if due and key_of(call) not in read:
                tally.found(
                    "never read by the loss",
                    expected=f"read once, with an advantage of {call.advantage or 0.0:.9g}",
                    training_step=evidence.training_step,
                    episode_id=call.episode_id,
                    step_index=call.step_index,
                    call_index=call.call_index,
                )


def check_nothing_else(evidence: Evidence, tally: Tally) -> None:
    """Nothing is in the loss that was not to be trained."""
    if not _recorded(evidence, tally):
        return
    for row in evidence.loss_inputs:
        tally.checked()
        call = evidence.calls.get(key_of(row))
        if row.num_tokens and (call is None or not evidence.in_loss(call)):
            tally.found(
                f"{row.num_tokens} tokens in the loss",
                expected="none: the call was not to be trained",
                training_step=evidence.training_step,
                episode_id=row.episode_id,
                step_index=row.step_index,
                call_index=row.call_index,
            )


RULES = (
    Rule(name="loss_input_tokens", claim="the loss read all tokens of a reply", check=check_tokens),
    Rule(
        name="loss_input_advantage",
        claim="the loss read the call's advantage",
        check=check_advantage,
    ),
    Rule(name="loss_input_weight", claim="the loss read the call's weight", check=check_weight),
    Rule(
        name="loss_input_logprobs",
        claim="the tokens in the loss are the reply's",
        check=check_logprobs,
    ),
    Rule(
        name="loss_input_once",
        claim="a call is read once, in its episode's optimizer step",
        check=check_once,
    ),
    Rule(
        name="loss_input_all",
        claim="every trained call with an advantage was read",
        check=check_all,
    ),
    Rule(
        name="loss_input_nothing_else",
        claim="nothing was read that was not to be trained",
        check=check_nothing_else,
    ),
)
