"""Training steps: everything stored of one about what was trained, for an audit of it.

A training step here is its update: the groups it took, whichever training step played them.
All queries are over the lineage and, unless greedy episodes are requested, over training episodes.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, CompoundSelect, case, func, literal, select
from sqlalchemy.orm import Session, aliased

from longhaul_core.store.message_text import message_numbers
from longhaul_core.store.models import (
    CallRow,
    CallTokensRow,
    CriticLossInputRow,
    EpisodeMediaRow,
    EpisodeRow,
    FailureRow,
    GroupRow,
    LossInputRow,
    MessageRow,
    MetricRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.queries.answers import columns
from longhaul_core.store.token_stream import TokenReader
from longhaul_core.types import FailureCause, Observation, Picture

__all__ = [
    "IN_GROUP",
    "OF_CALL",
    "CallNumbers",
    "CallPictures",
    "CriticLossInputNumbers",
    "DiscardedGroup",
    "EpisodeNumbers",
    "FirstReply",
    "GroupNumbers",
    "HorizonOutcomes",
    "LossInputNumbers",
    "PlayedGroup",
    "PromptTokens",
    "ReplyLogprobs",
    "StepNumbers",
    "TokenCredit",
    "anchor_texts",
    "call_numbers",
    "call_pictures",
    "critic_loss_input_numbers",
    "discarded_groups",
    "episode_numbers",
    "final_anchor_texts",
    "first_replies",
    "group_numbers",
    "has_loss_inputs",
    "horizon_outcomes",
    "loss_input_numbers",
    "metrics_of_training_step",
    "of_update",
    "played_groups",
    "prompt_tokens",
    "reply_logprobs",
    "step_numbers",
    "token_credits",
    "training_steps",
]

_BATCH = 2_000
"""Replies fetched at once."""

_SAME_PLACE = (
    (EpisodeRow.run_id == GroupRow.run_id)
    & (EpisodeRow.training_step == GroupRow.training_step)
    & (EpisodeRow.group_index == GroupRow.group_index)
    & (EpisodeRow.attempt == GroupRow.attempt)
)
IN_GROUP = _SAME_PLACE & (EpisodeRow.phase == GroupRow.phase)
"""Of an episode and its group."""
_BESIDE_GROUP = _SAME_PLACE & (EpisodeRow.phase == "baseline") & (GroupRow.phase == "train")
"""Of a greedy episode and the group that is compared with it, whose fate it shares."""
OF_CALL = (
    (CallTokensRow.episode_id == CallRow.episode_id)
    & (CallTokensRow.step_index == CallRow.step_index)
    & (CallTokensRow.call_index == CallRow.call_index)
)
"""Of tokens and their call."""


_LEFT_OUT = ("no_signal", "too_small")
"""Discard reasons of groups whose outcomes count all the same."""


class GroupNumbers(NamedTuple):
    """A group that was taken for the update."""

    group_index: int
    """0-based place in the update."""
    group_size: int | None
    """Episodes requested; None if the trainer gave no number."""


class EpisodeNumbers(NamedTuple):
    """An episode that ended or failed, failed tries included."""

    episode_id: str
    task_hash: str
    played_training_step: int
    trained_training_step: int | None
    """None if untrained."""
    group_index: int
    """0-based place of its group in the update."""
    sample_index: int
    retry: int
    failed: bool
    stop_reason: str | None
    """None if failed, as is episode_return."""
    episode_return: float | None
    success: bool | None
    """None if failed."""
    final_anchor_hash: str | None
    """Of the anchor state of the final observation; None if failed."""
    num_steps: int
    num_action_tokens: int
    horizon: int
    trained: bool
    episode_advantage: float | None
    optimizer_step_index: int | None
    final_value: float | None
    environment: str
    """Of its task."""


class HorizonOutcomes(NamedTuple):
    """Outcomes of the episodes of a training step that were begun at one horizon."""

    training_step: int
    horizon: int
    num_successes: int
    num_episodes: int
    """That ended; failures are not counted."""


class DiscardedGroup(NamedTuple):
    """A group that the training step threw away."""

    played_training_step: int
    group_index: int
    """0-based place in the training step that played it."""
    discard_reason: str
    num_trained: int
    """Episodes that were trained all the same."""
    first_episode_id: str


class PlayedGroup(NamedTuple):
    """A group that a training step played, and what became of it."""

    group_index: int
    """0-based place in the training step that played it."""
    resolved_training_step: int | None
    """None while it waits."""
    update_index: int | None
    """0-based place in the update that took it; None if none did."""
    discard_reason: str | None
    num_ended: int
    """Episodes that did not fail."""
    num_stopped: int
    """Episodes that were stopped before their end."""
    least_return: float | None
    """Of the ended episodes, added up from the rewards of their steps; None without any."""
    greatest_return: float | None
    first_episode_id: str


class StepNumbers(NamedTuple):
    """A step. Credit is None where none was given."""

    episode_id: str
    step_index: int
    action_valid: bool
    reward: float
    shaped_reward: float | None
    return_to_go: float | None
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    loss_weight: float | None
    trained: bool
    anchor_hash: str
    value: float | None
    """None without a critic."""
    value_target: float | None
    """None without a critic."""


class CallNumbers(NamedTuple):
    """A call of a model. Credit is None where none was given."""

    episode_id: str
    step_index: int
    call_index: int
    agent: str
    purpose: str
    conversation: int
    continuation: str | None
    """How its prompt relates to the calls before; None where an episode loop composed it."""
    sampling_json: str | None
    """How it was drawn, where that was not as the run says."""
    finish_reason: str
    """`stop`, `length` (a limit on tokens), `tool_calls` or `aborted`."""
    trained: bool
    """Whether it was to be trained if its step is."""
    policy_version: int | None
    """None where no engine of ours sampled it, as are the numbers of tokens."""
    num_prompt_tokens: int | None
    num_action_tokens: int | None
    credit_share: float
    advantage: float | None
    loss_weight: float | None
    split_reason: str | None
    """None where it continued a row, or has no credit."""
    reference_logprob_sum: float | None
    """Of its action tokens, in nats; None unless pairs of episodes are trained."""


class CallPictures(NamedTuple):
    """What pictures a call was shown, and where they may be from; hashes."""

    episode_id: str
    step_index: int
    call_index: int
    prompt: tuple[str, ...]
    """In its messages, in order."""
    shown: frozenset[str]
    """In messages that are no tool's."""
    from_tools: frozenset[str]
    """In messages of tools."""
    observed: frozenset[str]
    """In the observation of its step."""
    removed: bool
    """Whether retention removed them, if there were any."""


class TokenCredit(NamedTuple):
    """What each token of a call was credited with, packed float32."""

    episode_id: str
    step_index: int
    call_index: int
    token_values: bytes | None
    """None where values are by step, or were pruned."""
    token_advantages: bytes | None


class ReplyLogprobs(NamedTuple):
    """The reply of a trained call; without logprobs once its tokens are pruned."""

    episode_id: str
    step_index: int
    call_index: int
    num_action_tokens: int | None
    """As counted when it was sampled; None where no engine of ours did."""
    pruned: bool
    """Whether its tokens are no longer in the store."""
    behavior_logprobs: bytes | None
    """Packed float32."""
    policy_logprobs: bytes | None
    """Packed float32; None also where the learner's were not kept."""


class PromptTokens(NamedTuple):
    """What was read and written in a call; tokens are packed int32, None once pruned."""

    episode_id: str
    step_index: int
    call_index: int
    agent: str
    purpose: str
    conversation: int
    trained: bool
    num_shared_prompt_tokens: int
    """Leading tokens that equal those of the prompt before by `LatestPrompts`."""
    other_prompt_tokens: bytes | None
    """The rest of the prompt."""
    action_tokens: bytes | None


class FirstReply(NamedTuple):
    """What chose the first action of an episode that did not fail; None where it was pruned."""

    episode_id: str
    prompt_tokens: bytes | None
    """Packed int32."""
    action_tokens: bytes | None
    """Packed int32."""
    behavior_logprobs: bytes | None
    """Packed float32."""


class CriticLossInputNumbers(NamedTuple):
    """A call in one row of a micro-batch, as the critic's loss read it."""

    episode_id: str
    step_index: int
    call_index: int
    training_step: int
    """Whose update read it."""
    optimizer_step_index: int
    num_tokens: int
    first_token: int | None
    """None without tokens, as are the extremes."""
    target_low: float | None
    target_high: float | None
    weight_low: float | None
    weight_high: float | None


class LossInputNumbers(NamedTuple):
    """A call in one row of a micro-batch, as the loss function read it."""

    episode_id: str
    step_index: int
    call_index: int
    training_step: int
    """Whose update read it."""
    optimizer_step_index: int
    rank: int
    micro_batch: int
    row_index: int
    num_tokens: int
    advantage_low: float | None
    """None without tokens, as are the other extremes."""
    advantage_high: float | None
    weight_low: float | None
    weight_high: float | None
    old_logprob_sum: float


def training_steps(session: Session, *, run_id: str) -> list[int]:
    """Numbers of the training steps that played groups or decided on some, rising."""
    rows = session.execute(
        select(GroupRow.training_step, GroupRow.resolved_training_step)
        .where(GroupRow.run_id == run_id, GroupRow.phase == "train", ~GroupRow.rolled_back)
        .distinct()
    )
    return sorted({number for row in rows for number in row if number is not None})


def horizon_outcomes(
    session: Session, *, run_id: str, of_played: bool = False
) -> list[HorizonOutcomes]:
    """Outcomes of groups by training step and horizon.

    Args:
        session: Only read from.
        run_id: The run asked about.
        of_played: Of the groups that each training step played to their end, instead of those
            that it took, or looked at and left out.
    """
    training_step = GroupRow.training_step if of_played else GroupRow.resolved_training_step
    counted = (
        func.coalesce(GroupRow.discard_reason, "") != FailureCause.STOPPED_EARLY.value
        if of_played
        else GroupRow.update_index.is_not(None) | GroupRow.discard_reason.in_(_LEFT_OUT)
    )
    rows = session.execute(
        select(
            training_step,
            EpisodeRow.horizon,
            func.sum(case((EpisodeRow.success.is_(True), 1), else_=0)),
            func.count(),
        )
        .join(EpisodeRow, IN_GROUP)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            counted,
            ~GroupRow.rolled_back,
            ~EpisodeRow.failed,
        )
        .group_by(training_step, EpisodeRow.horizon)
        .order_by(training_step, EpisodeRow.horizon)
    )
    return [HorizonOutcomes(*row) for row in rows]


def group_numbers(session: Session, *, run_id: str, training_step: int) -> list[GroupNumbers]:
    """Groups of a training step's update, in their order there."""
    rows = session.execute(
        select(GroupRow.update_index, GroupRow.group_size)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            GroupRow.resolved_training_step == training_step,
            GroupRow.update_index.is_not(None),
            ~GroupRow.rolled_back,
        )
        .order_by(GroupRow.update_index)
    )
    return [GroupNumbers(*row) for row in rows]


def discarded_groups(session: Session, *, run_id: str, training_step: int) -> list[DiscardedGroup]:
    """Groups that a training step threw away, by when they were played."""
    rows = session.execute(
        select(
            GroupRow.training_step,
            GroupRow.group_index,
            GroupRow.discard_reason,
            func.sum(case((EpisodeRow.trained, 1), else_=0)),
            func.min(EpisodeRow.id),
        )
        .join(EpisodeRow, IN_GROUP)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            GroupRow.resolved_training_step == training_step,
            GroupRow.discard_reason.is_not(None),
            ~GroupRow.rolled_back,
        )
        .group_by(GroupRow.training_step, GroupRow.group_index, GroupRow.discard_reason)
        .order_by(GroupRow.training_step, GroupRow.group_index)
    )
    return [DiscardedGroup(*row) for row in rows]


def played_groups(session: Session, *, run_id: str, training_step: int) -> list[PlayedGroup]:
    """Groups that a training step played, in the order in which they were requested."""
    of_step = (
        EpisodeRow.run_id == run_id,
        EpisodeRow.phase == "train",
        EpisodeRow.training_step == training_step,
        ~EpisodeRow.rolled_back,
    )
    returns = (
        select(EpisodeRow.id.label("id"), func.sum(StepRow.reward).label("total"))
        .join(StepRow, StepRow.episode_id == EpisodeRow.id)
        .where(*of_step, ~EpisodeRow.failed)
        .group_by(EpisodeRow.id)
        .subquery()
    )
    rows = session.execute(
        select(
            GroupRow.group_index,
            GroupRow.resolved_training_step,
            GroupRow.update_index,
            GroupRow.discard_reason,
            func.sum(case((EpisodeRow.failed, 0), else_=1)),
            func.sum(case((FailureRow.cause == FailureCause.STOPPED_EARLY.value, 1), else_=0)),
            func.min(returns.c.total),
            func.max(returns.c.total),
            func.min(EpisodeRow.id),
        )
        .join(EpisodeRow, IN_GROUP)
        .outerjoin(returns, returns.c.id == EpisodeRow.id)
        .outerjoin(FailureRow, FailureRow.episode_id == EpisodeRow.id)
        .where(*of_step, ~GroupRow.rolled_back)
        .group_by(
            GroupRow.group_index,
            GroupRow.resolved_training_step,
            GroupRow.update_index,
            GroupRow.discard_reason,
        )
        .order_by(GroupRow.group_index)
    )
    return [PlayedGroup(*row) for row in rows]


def episode_numbers(
    session: Session, *, run_id: str, training_step: int, greedy: bool = False
) -> list[EpisodeNumbers]:
    """Episodes of a training step, by group, sample_index and retry.

    Args:
        session: Only read from.
        run_id: The run asked about.
        training_step: Which.
        greedy: Of the greedy episodes beside the groups, instead of the sampled ones.
    """
    rows = session.execute(
        select(
            *columns(
                EpisodeNumbers,
                EpisodeRow,
                episode_id=EpisodeRow.id,
                played_training_step=EpisodeRow.training_step,
                group_index=GroupRow.update_index,
                environment=TaskRow.environment,
            )
        )
        .join(GroupRow, _BESIDE_GROUP if greedy else IN_GROUP)
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(*of_update(run_id, training_step))
        .order_by(GroupRow.update_index, EpisodeRow.sample_index, EpisodeRow.retry)
    )
    return [EpisodeNumbers(*row) for row in rows]


def step_numbers(
    session: Session, *, run_id: str, training_step: int, greedy: bool = False
) -> list[StepNumbers]:
    """Steps of a training step's episodes, by episode and index; see `episode_numbers`."""
    rows = session.execute(
        select(*columns(StepNumbers, StepRow))
        .join(EpisodeRow, EpisodeRow.id == StepRow.episode_id)
        .join(GroupRow, _BESIDE_GROUP if greedy else IN_GROUP)
        .where(*of_update(run_id, training_step))
        .order_by(StepRow.episode_id, StepRow.step_index)
    )
    return [StepNumbers(*row) for row in rows]


def call_numbers(
    session: Session, *, run_id: str, training_step: int, greedy: bool = False
) -> list[CallNumbers]:
    """Calls of a training step's episodes, by episode, step and place; see `episode_numbers`."""
    rows = session.execute(
        select(*columns(CallNumbers, CallRow))
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .join(GroupRow, _BESIDE_GROUP if greedy else IN_GROUP)
        .where(*of_update(run_id, training_step))
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index)
    )
    return [CallNumbers(*row) for row in rows]


def call_pictures(
    session: Session, *, run_id: str, training_step: int, greedy: bool = False
) -> list[CallPictures]:
    """Calls of those episodes that have pictures, or may have had, by episode, step and place."""
    removed = func.coalesce(EpisodeRow.retention, "") == "removed"
    rows = session.execute(
        select(
            CallRow.episode_id,
            CallRow.step_index,
            CallRow.call_index,
            CallRow.messages_json,
            ObservationRow.picture_hashes_json,
            removed.label("removed"),
        )
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .join(GroupRow, _BESIDE_GROUP if greedy else IN_GROUP)
        .outerjoin(
            ObservationRow,
            (ObservationRow.episode_id == CallRow.episode_id)
            & (ObservationRow.step_index == CallRow.step_index),
        )
        .where(
            *of_update(run_id, training_step),
            removed
            | select(EpisodeMediaRow.episode_id)
            .where(EpisodeMediaRow.episode_id == EpisodeRow.id)
            .exists(),
        )
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index)
    ).all()
    messages = _messages_with_pictures(session, {row.episode_id for row in rows})
    found: list[CallPictures] = []
    for row in rows:
        prompt = [(row.episode_id, number) for number in message_numbers(row.messages_json)]
        held = [messages[each] for each in prompt if each in messages]
        found.append(
            CallPictures(
                *row[:3],
                prompt=tuple(p for _, of in held for p in of),
                shown=frozenset(p for role, of in held for p in of if role != "tool"),
                from_tools=frozenset(p for role, of in held for p in of if role == "tool"),
                observed=frozenset(_strings(row.picture_hashes_json)),
                removed=row.removed,
            )
        )
    return found


def _messages_with_pictures(
    session: Session, episode_ids: Collection[str]
) -> dict[tuple[str, int], tuple[str, list[str]]]:
    """Role and pictures of the messages of several parts, by episode and number."""
    found: dict[tuple[str, int], tuple[str, list[str]]] = {}
    wanted = sorted(episode_ids)
    for start in range(0, len(wanted), 500):
        for episode_id, number, role, parts_json in session.execute(
            select(
                MessageRow.episode_id, MessageRow.number, MessageRow.role, MessageRow.parts_json
            ).where(
                MessageRow.episode_id.in_(wanted[start : start + 500]),
                MessageRow.parts_json.is_not(None),
            )
        ):
            parts: list[str | dict[str, str]] = json.loads(parts_json or "[]")
            pictures = [part["picture"] for part in parts if isinstance(part, dict)]
            found[episode_id, number] = role, pictures
    return found


def reply_texts(
    session: Session, *, run_id: str, training_step: int
) -> dict[tuple[str, int, int], str | None]:
    """Replies of the calls of the trained episodes of a training step, by episode, step and place.

    One is None once retention removed it.
    """
    rows = session.execute(
        select(CallRow.episode_id, CallRow.step_index, CallRow.call_index, CallRow.reply)
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), EpisodeRow.trained)
    )
    return {(episode_id, step, call): reply for episode_id, step, call, reply in rows}


def first_replies(session: Session, *, run_id: str, training_step: int) -> dict[str, FirstReply]:
    """What chose the first action of each sampled and each greedy episode of a training step.

    Raises:
        StoreError: Tokens in the store are damaged.
    """
    rows = session.execute(
        select(*columns(_StoredTokens, CallRow, CallTokensRow), StepRow.act_call_index)
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .outerjoin(CallTokensRow, OF_CALL)
        .join(GroupRow, _SAME_PLACE & EpisodeRow.phase.in_(("train", "baseline")))
        .join(
            StepRow,
            (StepRow.episode_id == CallRow.episode_id)
            & (StepRow.step_index == CallRow.step_index)
            & (StepRow.act_call_index >= CallRow.call_index),
        )
        .where(*of_update(run_id, training_step), ~EpisodeRow.failed, CallRow.step_index == 0)
        .order_by(CallRow.episode_id, CallRow.call_index)
    ).all()
    calls = [_StoredTokens(*row[: len(_StoredTokens._fields)]) for row in rows]
    acting = {(row.episode_id, row.act_call_index) for row in rows}
    found: dict[str, FirstReply] = {}
    for call, others, reply in _read_tokens(calls):
        if (call.episode_id, call.call_index) in acting:
            found[call.episode_id] = FirstReply(
                call.episode_id, others, reply, call.behavior_logprobs
            )
    return found


def anchor_texts(
    session: Session, *, run_id: str, training_step: int
) -> dict[tuple[str, int], str]:
    """The anchor state of each step as text, by episode and index."""
    rows = session.execute(
        select(
            ObservationRow.episode_id,
            ObservationRow.step_index,
            ObservationRow.anchor_state,
            ObservationRow.text,
            ObservationRow.picture_hashes_json,
        )
        .join(EpisodeRow, EpisodeRow.id == ObservationRow.episode_id)
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step))
    )
    return {(row.episode_id, row.step_index): _anchor(*row[2:]) for row in rows}


def final_anchor_texts(session: Session, *, run_id: str, training_step: int) -> dict[str, str]:
    """The anchor state that each episode ended in as text, by episode; failed ones have none."""
    rows = session.execute(
        select(
            EpisodeRow.id,
            EpisodeRow.final_anchor_state,
            EpisodeRow.final_observation,
            EpisodeRow.final_picture_hashes_json,
        )
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), EpisodeRow.final_observation.is_not(None))
    )
    return {key: _anchor(state, shown or "", pictures) for key, state, shown, pictures in rows}


def _anchor(anchor_state: str | None, shown: str, picture_hashes_json: str | None) -> str:
    pictures = tuple(
        Picture(media_type="image/png", content_hash=each)  # an anchor does not read the type
        for each in _strings(picture_hashes_json)
    )
    return Observation(text=shown, pictures=pictures, anchor_state=anchor_state).anchor


def _strings(list_json: str | None) -> Sequence[str]:
    return [] if list_json is None else json.loads(list_json)


def reply_logprobs(
    session: Session, *, run_id: str, training_step: int
) -> Iterator[list[ReplyLogprobs]]:
    """Trained replies of the trained episodes of a training step, some thousand at a time."""
    rows = session.execute(
        select(
            *columns(ReplyLogprobs, CallRow, CallTokensRow, pruned=CallTokensRow.tokens.is_(None))
        )
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .outerjoin(CallTokensRow, OF_CALL)
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), EpisodeRow.trained, CallRow.trained),
        execution_options={"yield_per": _BATCH},
    )
    for batch in rows.partitions():
        yield [ReplyLogprobs(*row) for row in batch]


def prompt_tokens(session: Session, *, run_id: str, training_step: int) -> Iterator[PromptTokens]:
    """Tokens of the calls of the trained episodes of a training step, by episode, step and place.

    Calls that no engine of ours answered are left out.

    Raises:
        StoreError: Tokens in the store are damaged.
    """
    rows = session.execute(
        select(*columns(_StoredTokens, CallRow, CallTokensRow))
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .outerjoin(CallTokensRow, OF_CALL)
        .join(GroupRow, IN_GROUP)
        .where(
            *of_update(run_id, training_step),
            EpisodeRow.trained,
            CallRow.num_shared_prompt_tokens.is_not(None),
        )
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index),
        execution_options={"yield_per": _BATCH},
    )
    for call, others, reply in _read_tokens(_StoredTokens(*row) for row in rows):
        yield PromptTokens(
            episode_id=call.episode_id,
            step_index=call.step_index,
            call_index=call.call_index,
            agent=call.agent,
            purpose=call.purpose,
            conversation=call.conversation,
            trained=call.trained,
            num_shared_prompt_tokens=call.num_shared_prompt_tokens or 0,
            other_prompt_tokens=others,
            action_tokens=reply,
        )


class _StoredTokens(NamedTuple):
    """A call with its tokens as they are stored."""

    episode_id: str
    step_index: int
    call_index: int
    agent: str
    purpose: str
    conversation: int
    trained: bool
    num_prompt_tokens: int | None
    num_action_tokens: int | None
    num_shared_prompt_tokens: int | None
    tokens: bytes | None
    behavior_logprobs: bytes | None


def _read_tokens(
    calls: Iterable[_StoredTokens],
) -> Iterator[tuple[_StoredTokens, bytes | None, bytes | None]]:
    """Calls, each with its prompt but for what it shares, and its reply; packed, None once pruned.

    Args:
        calls: By episode, step and place: all of an episode from its first on.
    """
    episode_id, reader = "", TokenReader()
    for call in calls:
        if call.episode_id != episode_id:
            episode_id, reader = call.episode_id, TokenReader()
        if call.num_prompt_tokens is None or call.num_action_tokens is None:
            yield call, None, None
            continue
        read = reader.read(
            call.tokens,
            counts=(
                call.num_prompt_tokens - (call.num_shared_prompt_tokens or 0),
                call.num_action_tokens,
            ),
            call=f"call {call.call_index} of step {call.step_index} of {call.episode_id}",
        )
        others, reply = read or (None, None)
        yield call, others, reply


def loss_input_numbers(
    session: Session, *, run_id: str, training_step: int
) -> list[LossInputNumbers]:
    """What the loss read of a training step's groups, by episode, step, call and time.

    Its groups are those that it took or threw away, whichever update read them, and those that it
    played and that still wait.
    """
    rows = session.execute(
        select(*columns(LossInputNumbers, LossInputRow))
        .join(EpisodeRow, EpisodeRow.id == LossInputRow.episode_id)
        .join(GroupRow, IN_GROUP)
        .where(*_settled(run_id, training_step))
        .order_by(*LossInputRow.__table__.primary_key)
    )
    return [LossInputNumbers(*row) for row in rows]


def critic_loss_input_numbers(
    session: Session, *, run_id: str, training_step: int
) -> list[CriticLossInputNumbers]:
    """What the critic's loss read of a training step's groups; see `loss_input_numbers`."""
    rows = session.execute(
        select(*columns(CriticLossInputNumbers, CriticLossInputRow))
        .join(EpisodeRow, EpisodeRow.id == CriticLossInputRow.episode_id)
        .join(GroupRow, IN_GROUP)
        .where(*_settled(run_id, training_step))
        .order_by(*CriticLossInputRow.__table__.primary_key)
    )
    return [CriticLossInputNumbers(*row) for row in rows]


def token_credits(session: Session, *, run_id: str, training_step: int) -> list[TokenCredit]:
    """Values and advantages of the tokens of trained calls, by episode, step and place."""
    rows = session.execute(
        select(*columns(TokenCredit, CallRow, CallTokensRow))
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .outerjoin(CallTokensRow, OF_CALL)
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), CallRow.trained)
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index)
    )
    return [TokenCredit(*row) for row in rows]


def has_loss_inputs(session: Session, *, run_id: str) -> bool:
    """Whether the store holds a loss input of any call of the run."""
    statement = (
        select(LossInputRow.step_index)
        .join(EpisodeRow, EpisodeRow.id == LossInputRow.episode_id)
        .where(EpisodeRow.run_id == run_id)
        .limit(1)
    )
    return session.scalar(statement) is not None


def metrics_of_training_step(
    session: Session, *, run_id: str, training_step: int, names: Collection[str] | None = None
) -> dict[str, float | None]:
    """Metrics of a training step, keyed by name; empty until it is over.

    Args:
        session: Only read from.
        run_id: The run asked about.
        training_step: Which.
        names: Only these; None means all.
    """
    conditions = [
        MetricRow.run_id == run_id,
        MetricRow.training_step == training_step,
        ~MetricRow.rolled_back,
    ]
    if names is not None:
        conditions.append(MetricRow.name.in_(names))
    rows = session.execute(select(MetricRow.name, MetricRow.value).where(*conditions))
    return {row.name: row.value for row in rows}


def of_update(run_id: str, training_step: int) -> tuple[ColumnElement[bool], ...]:
    """Episodes of groups that the update took."""
    return (
        GroupRow.run_id == run_id,
        GroupRow.phase == "train",
        GroupRow.resolved_training_step == training_step,
        GroupRow.update_index.is_not(None),
        ~GroupRow.rolled_back,
        EpisodeRow.training_step.in_(_played_for(run_id, training_step)),
    )


def _settled(run_id: str, training_step: int) -> tuple[ColumnElement[bool], ...]:
    """Episodes of groups that the training step took or threw away, or played and left waiting."""
    return (
        GroupRow.run_id == run_id,
        GroupRow.phase == "train",
        (GroupRow.resolved_training_step == training_step)
        | (GroupRow.resolved_training_step.is_(None) & (GroupRow.training_step == training_step)),
        ~GroupRow.rolled_back,
        EpisodeRow.training_step.in_(_played_for(run_id, training_step)),
    )


def _played_for(run_id: str, training_step: int) -> CompoundSelect[int]:
    """Training steps that played what `training_step` decided on, and itself.

    They follow from the other conditions. Without these hints, a database without statistics would
    begin with all episodes of the run.
    """
    group = aliased(GroupRow)
    return (
        select(group.training_step)
        .where(group.run_id == run_id, group.resolved_training_step == training_step)
        .union(select(literal(training_step)))
    )
