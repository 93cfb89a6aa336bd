"""Rules about rows: where an episode was cut, for what reason, and that it was read so."""

from collections import Counter, defaultdict
from itertools import pairwise

from longhaul_core.audit.evidence import AuditedEpisode, Evidence, StepKey
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rule
from longhaul_core.store.queries import LossInputNumbers, StepNumbers

__all__ = ["RULES"]

CONTINUES = "the step continues the row of the one before it"


def reason_of(
    before: StepNumbers, step: StepNumbers, *, goes_on: bool, intent: Intent
) -> str | None:
    """Why a row must begin with `step`; None if it must continue the row of `before`.

    Args:
        before: The step before.
        step: Not the first of its episode.
        goes_on: Whether its prompt begins with the tokens of the step before.
        intent: What the run was meant to do.
    """
    if intent.rows == "step":
        return "one_row_per_step"
    if not goes_on:
        return "prompt_changed"
    if step.policy_version != before.policy_version:
        return "policy_changed"
    length = step.num_prompt_tokens + step.num_action_tokens
    if intent.max_row_tokens is not None and length > intent.max_row_tokens:
        return "row_full"
    return None


def check_split_reasons(evidence: Evidence, tally: Tally) -> None:
    """A row begins where it must and nowhere else, and the recorded reason is the true one."""
    for episode in evidence.trained:
        if not episode.complete:
            tally.skip("the episode's steps are not all there", len(episode.steps))
            continue
        first = episode.steps[0]
        _compare(evidence, tally, first, "first_step")
        for before, step in pairwise(episode.steps):
            goes_on = evidence.continued.get((step.episode_id, step.step_index))
            if evidence.intent.rows == "merged" and goes_on is None:
                tally.skip("its tokens were pruned from the store")
                continue
            expected = reason_of(before, step, goes_on=bool(goes_on), intent=evidence.intent)
            _compare(evidence, tally, step, expected)


def _compare(evidence: Evidence, tally: Tally, step: StepNumbers, expected: str | None) -> None:
    tally.checked()
    if step.split_reason != expected:
        tally.found(
            step.split_reason or CONTINUES,
            expected=expected or CONTINUES,
            training_step=evidence.training_step,
            episode_id=step.episode_id,
            step_index=step.step_index,
        )


Place = tuple[int, int, int, int]
"""Optimizer step, rank, micro-batch, and row in it."""


def check_loss_input_rows(evidence: Evidence, tally: Tally) -> None:
    """The steps of a row were read together, in a row of their own."""
    row_of = {key: row for episode in evidence.trained for key, row in _rows(episode).items()}
    times = Counter((read.episode_id, read.step_index) for read in evidence.consumed)
    places: dict[StepKey, Place] = {}
    owner: dict[Place, StepKey] = {}
    for read in evidence.consumed:
        key = (read.episode_id, read.step_index)
        row, place = row_of.get(key), _place(read)
        if row is None or times[key] > 1:
            continue  # loss_input_nothing_else and loss_input_once are about those
        tally.checked()
        if places.setdefault(row, place) != place or owner.setdefault(place, row) != row:
            apart = places[row] != place
            tally.found(
                "read apart from its row" if apart else "read in a row with another one's steps",
                expected="read together with the steps of its row, and with no others",
                training_step=evidence.training_step,
                episode_id=read.episode_id,
                step_index=read.step_index,
            )
    if evidence.loss_inputs_recorded:
        _check_whole(evidence, tally, row_of, read_steps=set(times))


def _check_whole(
    evidence: Evidence, tally: Tally, row_of: dict[StepKey, StepKey], *, read_steps: set[StepKey]
) -> None:
    members: dict[StepKey, list[StepKey]] = defaultdict(list)
    for step, row in row_of.items():
        members[row].append(step)
    for steps in members.values():
        lost = [step for step in steps if step not in read_steps]
        if lost and len(lost) < len(steps):
            for episode_id, step_index in lost:
                tally.found(
                    "never read by the loss",
                    expected="read, as others of its row were",
                    training_step=evidence.training_step,
                    episode_id=episode_id,
                    step_index=step_index,
                )


def _rows(episode: AuditedEpisode) -> dict[StepKey, StepKey]:
    """Of each step, the first step of its row."""
    found: dict[StepKey, StepKey] = {}
    first: StepKey | None = None
    for step in episode.steps:
        key = (step.episode_id, step.step_index)
        first = key if first is None or step.split_reason is not None else first
        found[key] = first
    return found


def _place(read: LossInputNumbers) -> Place:
    return read.optimizer_step_index, read.rank, read.micro_batch, read.row_index


RULES = (
    Rule(
        name="split_reasons",
        claim="a row begins where it must, and for the recorded reason",
        check=check_split_reasons,
    ),
    Rule(
        name="loss_input_rows",
        claim="the steps of a row were read together, and with no others",
        check=check_loss_input_rows,
    ),
)
