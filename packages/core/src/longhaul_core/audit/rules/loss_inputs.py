"""Rules about what the loss function read: all that was meant, once, and nothing else.

The learner's processes leave one row for each time that a call went through the loss. Calls
whose advantage is exactly 0 may be left out of it where the loss has no other term.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from longhaul_core.audit.evidence import Evidence, key_of
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Check, Rules, far
from longhaul_core.audit.tables import CallNumbers, LossInput

__all__ = ["RULES"]

RULES = Rules()

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
    return meant is not None and not far(found, meant, 0.0)


def _range(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.9g} to {high:.9g}"


@RULES.add("loss_input_tokens", "the loss read all tokens of a reply")
def check_tokens(evidence: Evidence, tally: Tally) -> None:
    """All tokens of a reply were in the loss, and no others of its row."""
    for row, call in _pairs(evidence, tally):
        tally.checked()
        if row.num_tokens != call.num_action_tokens:
            tally.found(
                f"{row.num_tokens} tokens in the loss",
                *key_of(row),
                expected=f"the reply's {call.num_action_tokens}",
            )


def _each_range(
    name: str,
    found: Callable[[LossInput], tuple[float | None, float | None]],
    meant: Callable[[Evidence, CallNumbers], tuple[float | None, float | None]],
) -> Check:
    """A check that the least and the greatest number of a call's tokens are those that were meant.

    Args:
        name: Of the numbers.
        found: Read of a call by the loss.
        meant: Of a call.
    """

    def check(evidence: Evidence, tally: Tally) -> None:
        for row, call in _pairs(evidence, tally):
            if row.num_tokens == 0:
                continue
            tally.checked()
            bounds = meant(evidence, call)
            if not all(map(_is, found(row), bounds)):
                tally.found(
                    f"{name} {_range(*found(row))}",
                    *key_of(row),
                    expected=bounds[0] if bounds[0] == bounds[1] else _range(*bounds),
                )

    return check


RULES.add("loss_input_advantage", "the loss read the call's advantage")(
    _each_range(
        "advantages",
        lambda row: (row.advantage_low, row.advantage_high),
        lambda evidence, call: evidence.read_advantages(call),
    )
)


RULES.add("loss_input_weight", "the loss read the call's weight")(
    _each_range(
        "weights",
        lambda row: (row.weight_low, row.weight_high),
        lambda _, call: (call.loss_weight, call.loss_weight),
    )
)


@RULES.add("loss_input_logprobs", "the tokens in the loss are the reply's")
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
                *key_of(row),
                expected=f"{sums[key]:.9g}, the sum of the reply's policy logprobs",
            )


@RULES.add("loss_input_once", "a call is read once, in its episode's optimizer step")
def check_once(evidence: Evidence, tally: Tally) -> None:
    """A call is read once in a training step, in the optimizer step of its episode."""
    episodes = {episode.numbers.episode_id: episode.numbers for episode in evidence.episodes}
    times = Counter(key_of(row) for row, _ in _pairs(evidence, tally))
    tally.checked(len(times))
    for (episode_id, step_index, call_index), number in times.items():
        if number > 1:
            tally.found(f"read {number} times", episode_id, step_index, call_index, expected="once")
    for row in evidence.loss_inputs:
        episode = episodes.get(row.episode_id)
        if episode is None or episode.optimizer_step_index is None:
            continue  # found by loss_input_nothing_else
        meant = (evidence.training_step, episode.optimizer_step_index)
        if (row.training_step, row.optimizer_step_index) != meant:
            tally.found(
                f"read in optimizer step {row.optimizer_step_index} of training step "
                f"{row.training_step}",
                *key_of(row),
                expected=f"optimizer step {meant[1]} of training step {meant[0]}",
            )


@RULES.add("loss_input_all", "every trained call with an advantage was read")
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
                    *key_of(call),
                    expected=f"read once, with an advantage of {call.advantage or 0.0:.9g}",
                )


@RULES.add("loss_input_nothing_else", "nothing was read that was not to be trained")
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
                *key_of(row),
                expected="none: the call was not to be trained",
            )
