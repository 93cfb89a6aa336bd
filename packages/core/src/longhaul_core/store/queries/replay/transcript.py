"""A whole episode to read from top to bottom: what was new in each prompt, and every reply."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.messages import PromptMessage, StoredPicture
from longhaul_core.store.queries.replay.outline import episode_outline
from longhaul_core.store.queries.replay.texts import CallTexts, EpisodeTexts, step_texts
from longhaul_core.types import ToolCall

__all__ = ["TranscriptCall", "TranscriptStep", "episode_transcript"]


@dataclass(frozen=True, slots=True)
class TranscriptCall(Answer):
    """A call, with what its prompt showed for the first time in the episode."""

    call_index: int
    purpose: str
    agent: str
    model: str
    messages: tuple[PromptMessage, ...]
    """Of its prompt, those that no call before had, and that repeat no earlier reply."""
    reply: str | None
    """None once retention removed it."""
    tool_calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class TranscriptStep(Answer):
    """A step of the transcript."""

    step_index: int
    observation: str | None
    """None once retention removed it."""
    pictures: tuple[StoredPicture, ...]
    calls: tuple[TranscriptCall, ...]
    action: str
    """What the environment was given."""
    action_valid: bool
    reward: float


def episode_transcript(session: Session, *, episode_id: str) -> tuple[TranscriptStep, ...]:
    """All steps in order; each message stands where it was first read.

    Raises:
        LookupError: There is no such episode.
        StoreError: Messages are damaged.
    """
    outline = episode_outline(session, episode_id=episode_id)
    num_steps = len(outline.steps.reward)
    texts = step_texts(session, episode_id=episode_id, first=0, stop=num_steps, tokens=False)
    new = _NewMessages(texts)
    names = {
        (step_index, call_index): (purpose, agent, model)
        for step_index, call_index, purpose, agent, model in zip(
            outline.calls.step_index,
            outline.calls.call_index,
            outline.calls.purpose,
            outline.calls.agent,
            outline.calls.model,
            strict=True,
        )
    }

    def call(step_index: int, texts: CallTexts) -> TranscriptCall:
        purpose, agent, model = names[step_index, texts.call_index]
        return TranscriptCall(
            call_index=texts.call_index,
            purpose=purpose,
            agent=agent,
            model=model,
            messages=tuple(new.of(texts)),
            reply=texts.reply,
            tool_calls=texts.tool_calls,
        )

    return tuple(
        TranscriptStep(
            step_index=step.step_index,
            observation=step.observation,
            pictures=step.pictures,
            calls=tuple(call(step.step_index, each) for each in step.calls),
            action=step.action,
            action_valid=outline.steps.action_valid[step.step_index],
            reward=outline.steps.reward[step.step_index],
        )
        for step in texts.steps
    )


class _NewMessages:
    """Goes through the calls of an episode in order."""

    def __init__(self, texts: EpisodeTexts) -> None:
        self._messages = texts.messages
        self._known: set[PromptMessage] = set()
        """Looked at before: a full memory shows each in every prompt from then on."""
        self._replies: set[str] = set()

    def of(self, call: CallTexts) -> Iterator[PromptMessage]:
        """What its prompt has that was neither read nor written before."""
        for number in call.prompt:
            message = self._messages[number]
            if message in self._known:
                continue
            self._known.add(message)
            if not self._repeats_a_reply(message):
                yield message
        if call.reply is not None:
            self._replies.add(call.reply)

    def _repeats_a_reply(self, message: PromptMessage) -> bool:
        """A memory of everything shows replies again, behind the prefix that they began with."""
        if message.role != "assistant":
            return False
        text = message.text
        return text in self._replies or any(
            text.endswith(reply) for reply in self._replies if reply
        )
