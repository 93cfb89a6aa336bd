"""One step in full, read without the rest of its episode."""

from dataclasses import fields
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import CallRow, ObservationRow, StepRow
from longhaul_core.store.packing import unpack_entropies, unpack_logprobs
from longhaul_core.store.queries.episodes import CallDetail, CallTokens, StepDetail
from longhaul_core.store.queries.messages import numbers_of, sampling_of, texts_of
from longhaul_core.store.queries.replay.outline import require_episode
from longhaul_core.store.queries.replay.texts import step_texts
from longhaul_core.store.queries.replay.tokens import StoredCall, stored_calls

__all__ = ["get_step"]


def get_step(session: Session, *, episode_id: str, step_index: int) -> StepDetail:
    """One step with all its calls, their tokens and logprobs.

    Raises:
        LookupError: There is no such episode, or it has no such step.
        StoreError: Tokens or messages are damaged.
    """
    require_episode(session, episode_id)
    step = session.get(StepRow, (episode_id, step_index))
    if step is None:
        num_steps = session.scalar(
            select(func.count()).select_from(StepRow).where(StepRow.episode_id == episode_id)
        )
        raise LookupError(
            f"episode {episode_id!r} has {num_steps} steps, so no step {step_index} (0-based)"
        )
    texts = step_texts(
        session, episode_id=episode_id, first=step_index, stop=step_index + 1, tokens=False
    )
    [shown] = texts.steps
    rows = session.scalars(
        select(CallRow)
        .where(CallRow.episode_id == episode_id, CallRow.step_index == step_index)
        .order_by(CallRow.call_index)
    )
    read = {
        call.call_index: _tokens(call)
        for call in stored_calls(session, episode_id, last=(step_index + 1, -1))
        if call.step_index == step_index
    }
    calls = tuple(
        CallDetail(
            **_fields(
                CallDetail,
                row,
                messages=tuple(texts.messages[number] for number in text.prompt),
                tools=() if text.tools is None else texts.tools[text.tools],
                tool_calls=text.tool_calls,
                sampling=sampling_of(row.sampling_json),
                overridden=texts_of(row.overridden_json),
                recalled_steps=numbers_of(row.recalled_steps_json),
                tokens=read[row.call_index],
            )
        )
        for row, text in zip(rows, shown.calls, strict=True)
    )
    anchor_state = session.scalar(
        select(ObservationRow.anchor_state).where(
            ObservationRow.episode_id == episode_id, ObservationRow.step_index == step_index
        )
    )
    return StepDetail(
        **_fields(
            StepDetail,
            step,
            observation=shown.observation,
            pictures=shown.pictures,
            anchor_state=anchor_state,
            admissible_actions=shown.admissible_actions,
            calls=calls,
        )
    )


def _tokens(call: StoredCall) -> CallTokens | None:
    if call.prompt is None or call.reply is None or call.row is None:
        return None
    learner, entropies = call.row.policy_logprobs, call.row.policy_entropies
    return CallTokens(
        prompt_tokens=call.prompt,
        action_tokens=call.reply,
        behavior_logprobs=unpack_logprobs(call.row.behavior_logprobs),
        policy_logprobs=None if learner is None else unpack_logprobs(learner),
        policy_entropies=None if entropies is None else unpack_entropies(entropies),
    )


def _fields(
    answer: type[StepDetail] | type[CallDetail], row: StepRow | CallRow, **given: object
) -> dict[str, Any]:
    """Values of an answer's fields: what is given, and the row's for the others."""
    names = [field.name for field in fields(answer)]
    return {name: given[name] if name in given else getattr(row, name) for name in names}
