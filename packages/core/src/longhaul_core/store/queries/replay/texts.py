"""What was shown, read and written in some steps of an episode."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.message_text import message_numbers
from longhaul_core.store.models import (
    CallRow,
    EpisodeRow,
    ObservationRow,
    RunRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import unknown_episode
from longhaul_core.store.queries.messages import (
    PromptMessage,
    StoredPicture,
    numbers_of,
    pictures_of,
    prompt_messages,
    sampling_of,
    texts_of,
    tool_calls,
    tools_of,
)
from longhaul_core.store.queries.metrics import token_pieces
from longhaul_core.store.queries.replay.tokens import ReplyTokens, reply_tokens, stored_calls
from longhaul_core.store.queries.replay.verdicts import (
    InvalidAction,
    ReplyReader,
    ReplyReading,
)
from longhaul_core.types import Sampling, Tool, ToolCall

__all__ = ["CallTexts", "EpisodeTexts", "StepTexts", "step_texts"]


@dataclass(frozen=True, slots=True)
class CallTexts(Answer):
    """A call's prompt and reply."""

    call_index: int
    prompt: tuple[int, ...]
    """Its messages, by their numbers in `EpisodeTexts.messages`; empty once removed."""
    reply: str | None
    """None once retention removed it."""
    tool_calls: tuple[ToolCall, ...]
    """What the reply asks for."""
    tools: int | None
    """What it could ask for: a number in `EpisodeTexts.tools`."""
    sampling: Sampling | None
    """How the reply was drawn, where that was not as the run says."""
    overridden: tuple[str, ...]
    """What its program asked for and did not get."""
    recalled_steps: tuple[int, ...]
    """Indices of the steps whose exchanges the memory chose from before the last ones, and the
    prompt shows."""
    tokens: ReplyTokens | None
    """None where no engine of ours wrote it, if they were pruned, or were not requested."""


@dataclass(frozen=True, slots=True)
class StepTexts(Answer):
    """A step's observation and calls."""

    step_index: int
    observation: str | None
    """None once retention removed it."""
    pictures: tuple[StoredPicture, ...]
    admissible_actions: tuple[str, ...] | None
    """None if the environment does not say."""
    action: str
    """What the environment was given, whole."""
    invalid: InvalidAction | None
    """Why the action counts as invalid; None if it is valid."""
    calls: tuple[CallTexts, ...]


@dataclass(frozen=True, slots=True)
class EpisodeTexts(Answer):
    """Some steps of an episode. Each message is here once, however many prompts it is in."""

    first: int
    stop: int
    """Step after the last one that is here."""
    messages: dict[int, PromptMessage]
    tools: dict[int, tuple[Tool, ...]]
    steps: tuple[StepTexts, ...]
    reading: ReplyReading | None
    """How the run read actions out of replies; None where its configuration does not say."""
    final_observation: str | None
    """Seen after the last action, where the last step is here; None if the episode failed."""


def step_texts(
    session: Session, *, episode_id: str, first: int, stop: int, tokens: bool = True
) -> EpisodeTexts:
    """Steps [first, stop) of an episode, as far as it has them.

    Args:
        session: Only read from.
        episode_id: Which.
        first: 0-based.
        stop: Step after the last one.
        tokens: The tokens of the replies too.

    Raises:
        LookupError: There is no such episode.
        StoreError: Tokens or messages are damaged.
    """
    episode = session.execute(
        select(
            EpisodeRow.run_id,
            EpisodeRow.num_steps,
            EpisodeRow.final_observation,
            TaskRow.environment,
            RunRow.config_json,
        )
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .join(RunRow, RunRow.id == EpisodeRow.run_id)
        .where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if episode is None:
        raise unknown_episode(episode_id)
    stop = min(stop, episode.num_steps)
    steps = session.scalars(
        select(StepRow)
        .where(StepRow.episode_id == episode_id, StepRow.step_index.between(first, stop - 1))
        .order_by(StepRow.step_index)
    ).all()
    observed = {
        row.step_index: row
        for row in session.scalars(
            select(ObservationRow).where(
                ObservationRow.episode_id == episode_id,
                ObservationRow.step_index.between(first, stop - 1),
            )
        )
    }
    calls: dict[int, list[CallRow]] = defaultdict(list)
    for row in session.scalars(
        select(CallRow)
        .where(CallRow.episode_id == episode_id, CallRow.step_index.between(first, stop - 1))
        .order_by(CallRow.step_index, CallRow.call_index)
    ):
        calls[row.step_index].append(row)
    rows = [row for of_step in calls.values() for row in of_step]
    prompts = {row.id: tuple(message_numbers(row.messages_json)) for row in rows}
    pictures = pictures_of(session, episode_id)
    written: Mapping[tuple[int, int], ReplyTokens | None] = {}
    if tokens:
        written = _written(session, episode_id, run_id=episode.run_id, first=first, stop=stop)
    reader = ReplyReader(episode.config_json, environment=episode.environment)

    def call_texts(row: CallRow) -> CallTexts:
        return CallTexts(
            call_index=row.call_index,
            prompt=prompts[row.id],
            reply=row.reply,
            tool_calls=tool_calls(row.tool_calls_json),
            tools=row.tools_number,
            sampling=sampling_of(row.sampling_json),
            overridden=texts_of(row.overridden_json),
            recalled_steps=numbers_of(row.recalled_steps_json),
            tokens=written.get((row.step_index, row.call_index)),
        )

    def texts(step: StepRow) -> StepTexts:
        shown = observed.get(step.step_index)
        listed = None if shown is None else shown.admissible_actions_json
        admissible = None if listed is None else tuple(json.loads(listed))
        act = next((c for c in calls[step.step_index] if c.call_index == step.act_call_index), None)
        return StepTexts(
            step_index=step.step_index,
            observation=None if shown is None else shown.text,
            pictures=()
            if shown is None
            else tuple(pictures[each] for each in texts_of(shown.picture_hashes_json)),
            admissible_actions=admissible,
            action=step.action,
            invalid=None
            if step.action_valid
            else reader.why_invalid(
                None if act is None else act.reply, action=step.action, admissible=admissible
            ),
            calls=tuple(map(call_texts, calls[step.step_index])),
        )

    return EpisodeTexts(
        first=first,
        stop=max(first, stop),
        messages=prompt_messages(
            session,
            episode_id,
            {number for prompt in prompts.values() for number in prompt},
            pictures=pictures,
        ),
        tools=tools_of(session, episode_id)
        if any(r.tools_number is not None for r in rows)
        else {},
        steps=tuple(map(texts, steps)),
        reading=reader.reading,
        final_observation=episode.final_observation if first < stop == episode.num_steps else None,
    )


def _written(
    session: Session, episode_id: str, *, run_id: str, first: int, stop: int
) -> Mapping[tuple[int, int], ReplyTokens | None]:
    """The tokens of the replies of some steps, by step and call."""
    found = [
        call
        for call in stored_calls(session, episode_id, last=(stop, -1))
        if first <= call.step_index < stop
    ]
    pieces = token_pieces(
        session,
        run_id=run_id,
        token_ids={token for call in found for token in call.reply or ()},
    )
    return {(c.step_index, c.call_index): reply_tokens(c, pieces) for c in found}
