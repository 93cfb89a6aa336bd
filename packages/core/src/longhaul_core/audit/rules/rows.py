"""Rules about rows: where an episode was cut, for what reason, and that it was read so."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from longhaul_core.audit.evidence import AuditedEpisode, CallKey, Evidence, key_of
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules
from longhaul_core.audit.tables import CallNumbers, LossInput

__all__ = ["RULES"]

RULES = Rules()

CONTINUES = "the call continues the row of the one before it"


def reason_of(
    before: CallNumbers | None, call: CallNumbers, *, goes_on: bool, intent: Intent
) -> str | None:
    """Why a row must begin with `call`; None if it must continue the row of `before`.

    Args:
        before: The trained call before it of its stream: of its agent, purpose and conversation.
        call: A trained one.
        goes_on: Whether its prompt begins with the tokens and the pictures of the call before.
        intent: What the run was meant to do.
    """
    if before is None:
        return _first_of(call)
    if intent.rows == "step":
        return "one_row_per_step"
    if not goes_on:
        return "prompt_changed"
    if call.policy_version != before.policy_version:
        return "policy_changed"
    length = (call.num_prompt_tokens or 0) + (call.num_action_tokens or 0)
    if intent.max_row_tokens is not None and length > intent.max_row_tokens:
        return "row_full"
    return None


def _first_of(call: CallNumbers) -> str:
    """Why a row begins with the first trained call of its stream."""
    if call.continuation == "forked":
        return "forked"
    return "new_conversation" if call.conversation else "first_step"


@RULES.add("split_reasons", "a row begins where it must, and for the recorded reason")
def check_split_reasons(evidence: Evidence, tally: Tally) -> None:
    """A row begins where it must and nowhere else, and the recorded reason is the true one."""
    pictures = {key_of(one): one.prompt for one in evidence.pictures}
    for episode in evidence.trained:
        if not episode.complete:
            tally.skip("the episode's steps are not all there", len(episode.steps))
            continue
        for before, call in _with_the_one_before(episode):
            goes_on = evidence.continued.get(key_of(call))
            if evidence.intent.rows == "merged" and before is not None and goes_on is None:
                tally.skip("its tokens were pruned from the store")
                continue
            if before is not None:
                earlier = pictures.get(key_of(before), ())
                # Two pictures of one size have the same tokens.
                goes_on = goes_on and pictures.get(key_of(call), ())[: len(earlier)] == earlier
            expected = reason_of(before, call, goes_on=bool(goes_on), intent=evidence.intent)
            tally.checked()
            if call.split_reason != expected:
                tally.found(
                    call.split_reason or CONTINUES, *key_of(call), expected=expected or CONTINUES
                )


def _with_the_one_before(
    episode: AuditedEpisode,
) -> Iterator[tuple[CallNumbers | None, CallNumbers]]:
    """The trained calls, each with the one before it of its stream."""
    newest: dict[tuple[str, str, int], CallNumbers] = {}
    for call in episode.calls:
        if call.trained:
            stream = (call.agent, call.purpose, call.conversation)
            yield newest.get(stream), call
            newest[stream] = call


Place = tuple[int, int, int, int]
"""Optimizer step, rank, micro-batch, and row in it."""


@RULES.add("loss_input_rows", "the calls of a row were read together, and with no others")
def check_loss_input_rows(evidence: Evidence, tally: Tally) -> None:
    """The calls of a row were read together, in a row of their own."""
    row_of = {key: row for episode in evidence.trained for key, row in _rows(episode).items()}
    times = Counter(key_of(read) for read in evidence.loss_inputs)
    places: dict[CallKey, Place] = {}
    owner: dict[Place, CallKey] = {}
    for read in evidence.loss_inputs:
        key = key_of(read)
        row, place = row_of.get(key), _place(read)
        if row is None or times[key] > 1:
            continue  # loss_input_nothing_else and loss_input_once are about those
        tally.checked()
        if places.setdefault(row, place) != place or owner.setdefault(place, row) != row:
            apart = places[row] != place
            tally.found(
                "read apart from its row" if apart else "read in a row with another one's calls",
                *key_of(read),
                expected="read together with the calls of its row, and with no others",
            )
    if evidence.loss_inputs_recorded:
        _check_whole(evidence, tally, row_of, read_calls=set(times))


def _check_whole(
    evidence: Evidence, tally: Tally, row_of: dict[CallKey, CallKey], *, read_calls: set[CallKey]
) -> None:
    members: dict[CallKey, list[CallKey]] = defaultdict(list)
    for call, row in row_of.items():
        members[row].append(call)
    for calls in members.values():
        lost = [call for call in calls if call not in read_calls]
        if lost and len(lost) < len(calls):
            for episode_id, step_index, call_index in lost:
                tally.found(
                    "never read by the loss",
                    episode_id,
                    step_index,
                    call_index,
                    expected="read, as others of its row were",
                )


def _rows(episode: AuditedEpisode) -> dict[CallKey, CallKey]:
    """Of each trained call, the first call of its row."""
    found: dict[CallKey, CallKey] = {}
    for before, call in _with_the_one_before(episode):
        continues = before is not None and call.split_reason is None
        found[key_of(call)] = found[key_of(before)] if before and continues else key_of(call)
    return found


def _place(read: LossInput) -> Place:
    return read.optimizer_step_index, read.rank, read.micro_batch, read.row_index
