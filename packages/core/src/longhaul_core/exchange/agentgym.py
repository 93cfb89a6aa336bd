"""AgentGym-RL's logs of rollouts, in both shapes.

The trainer writes a JSON array for each rank and step, `step7/0.json`: `item_id`, `conversations`
of `role` and `content`, and `reward`. The evaluation appends lines of JSONL whose `conversations`
have `from`, `value` and `loss`, with a `success`; the published data for imitation (AgentTraj-L)
has these too, without a reward. Either begins with the client's instructions and its own "OK. …",
which is no reply of the model's.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import Field, FiniteFloat, model_validator

from longhaul_core.exchange.chat import Lenient, replies_as_steps, strays
from longhaul_core.exchange.episodes import ImportedEpisode, with_return
from longhaul_core.exchange.reading import Place, Value, validated
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.types import Message, Role

__all__ = ["read_agentgym", "write_agentgym", "write_agentgym_eval"]

OPENING = "OK. I'll follow your instructions and try my best to solve the task."
_ROLES: dict[str, Role] = {"human": "user", "gpt": "assistant", "system": "system"}
_STEP_FOLDER = re.compile(r"step(\d{1,9})")


class _Turn(Lenient):
    role: Literal["system", "user", "assistant"] | None = None
    content: str | None = None
    speaker: Literal["human", "gpt", "system"] | None = Field(default=None, alias="from")
    value: str | None = None
    loss: bool | None = None

    @model_validator(mode="after")
    def _in_one_shape(self) -> "_Turn":
        shapes = [(self.role, self.content), (self.speaker, self.value)]
        if sum(None not in shape for shape in shapes) != 1 or any(
            (one is None) != (other is None) for one, other in shapes
        ):
            raise ValueError("a turn has either role and content, or from and value")
        return self

    def message(self) -> Message:
        role = self.role or _ROLES[self.speaker or "human"]
        return Message(role=role, content=(self.content if self.role else self.value) or "")


class _Log(Lenient):
    item_id: int | str
    conversations: list[_Turn]
    reward: FiniteFloat | None = None
    success: bool | None = None


def read_agentgym(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """An episode for each log, in either shape."""
    for value in values:
        log = validated(_Log, value)
        turns = log.conversations
        messages = [turn.message() for turn in turns]
        steps, final = replies_as_steps(
            messages, is_step=lambda place, turns=turns: _is_reply(turns, place)
        )
        if not steps:
            raise value.place.error("field conversations: no reply of the model")
        yield ImportedEpisode(
            place=value.place,
            task_id=str(log.item_id),
            steps=with_return(steps, log.reward or 0.0),
            success=log.success,
            training_step=_training_step(value.place),
            final_observation=final,
            left_out=frozenset(strays(log)),
        )


def _is_reply(turns: list[_Turn], place: int) -> bool:
    """Whether the model wrote it: the opening is marked by `loss`, or known by how it begins."""
    turn = turns[place]
    if turn.speaker is not None:
        return turn.loss is not False
    opens = place == 1 and (turn.content or "").lstrip().startswith("OK")
    return not (opens and len(turns) > 2 and turns[0].role == turns[2].role == "user")


def _training_step(place: Place) -> int:
    found = [match for name in place.file.parts if (match := _STEP_FOLDER.fullmatch(name))]
    return int(found[-1][1]) if found else 0


def write_agentgym(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """The trainer's shape, an element of an array."""
    yield {
        "item_id": episode.detail.summary.task_id,
        "conversations": [
            {"role": role, "content": text} for role, text, _ in _transcript(episode)
        ],
        "reward": episode.episode_return,
    }


def write_agentgym_eval(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """The evaluation's shape, a line."""
    yield {
        "conversations": [
            {"from": "gpt" if role == "assistant" else "human", "loss": loss, "value": text}
            for role, text, loss in _transcript(episode)
        ],
        "item_id": episode.detail.summary.task_id,
        "reward": episode.episode_return,
        "success": episode.detail.summary.success,
    }


def _transcript(episode: StoredEpisode) -> Iterator[tuple[Role, str, bool | None]]:
    """What was shown and answered, with AgentGym's opening where there are instructions."""
    steps = episode.detail.steps
    first = next((step.act for step in steps if step.act is not None), None)
    told = [] if first is None else [each.text for each in first.messages if each.role == "system"]
    if told:
        yield "user", "\n".join(told), None
        yield "assistant", OPENING, False
    for step in steps:
        yield "user", step.observation or "", None
        act = step.act
        reply = step.action if act is None else episode.prefix(act) + (act.reply or "")
        yield "assistant", reply, True
    if episode.detail.final_observation:
        yield "user", episode.detail.final_observation, None
