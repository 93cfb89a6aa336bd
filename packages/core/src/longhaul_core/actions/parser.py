"""Reading the action out of a reply, with a verdict on its validity.

A reply that breaks the rules still gives a text, because the environment is the
judge of what happens next; `valid` says whether to hold it against the policy.
Everything is found by `str.find` and the JSON decoder: time is linear in the reply,
whatever a model writes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

__all__ = ["ActionFormat", "ActionParser", "ParsedAction", "default_instruction"]

_OPEN, _CLOSE = "<action>", "</action>"
_THINK, _THOUGHT = "<think>", "</think>"


class ActionFormat(StrEnum):
    """How the policy is asked to write an action."""

    TAGS = "tags"
    """`<action>go north</action>`"""
    JSON = "json"
    """`{"action": "go north"}`; other keys are allowed."""
    PLAIN = "plain"
    """The first line that is not blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAction:
    """The action of a reply."""

    text: str
    """What the environment is given: the admissible action in its own spelling if the
    reply named one, else what the reply said, stripped."""
    valid: bool
    """True if the reply had the asked-for form and, if they are known, an admissible action."""
    reason: str = ""
    """Why it is not valid, for people; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionParser:
    """Reads actions of one format.

    A `<think>…</think>` part before the action is skipped in every format, so an
    action that is only thought about is never taken. After the first action the rest
    of a reply is ignored.
    """

    format: ActionFormat = ActionFormat.TAGS
    require_thinking: bool = False
    """Whether a reply without a closed `<think>` part is invalid."""
    reply_prefix: str = ""
    """What the prompt already wrote of the reply, e.g. `"<action>"`."""

    def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
        """The action of `reply`.

        Args:
            reply: What the policy wrote, without `reply_prefix`.
            admissible: Every action the environment accepts now; None if unknown.
                Case, runs of white space and the articles a, an and the are not compared.
        """
        reasoning, answer = _split_thinking(self.reply_prefix + reply)
        match self.format:
            case ActionFormat.TAGS:
                found = _in_tags(answer)
            case ActionFormat.JSON:
                found = _in_json(answer)
            case ActionFormat.PLAIN:
                # Here the prefix is a lead-in such as "The next action is to", no part of it.
                found = _in_plain(answer.removeprefix(self.reply_prefix))
        if found.valid and self.require_thinking and not reasoning:
            return ParsedAction(
                text=found.text, valid=False, reason=f"no {_THINK}…{_THOUGHT} before the action"
            )
        if not found.valid or admissible is None:
            return found
        return _among(found.text, admissible)


def default_instruction(action_format: ActionFormat, *, require_thinking: bool = False) -> str:
    """One line that tells a policy how to write its action."""
    think = f"Think inside {_THINK}…{_THOUGHT}, then write" if require_thinking else "Write"
    match action_format:
        case ActionFormat.TAGS:
            return f"{think} one action as {_OPEN}your action{_CLOSE}."
        case ActionFormat.JSON:
            return f'{think} one action as {{"action": "your action"}}.'
        case ActionFormat.PLAIN:
            return f"{think} one action on a line of its own."


def _split_thinking(text: str) -> tuple[str, str]:
    """What stands in the think part, and the text after it."""
    stripped = text.lstrip()
    end = stripped.find(_THOUGHT)
    if not stripped.startswith(_THINK):
        return "", text
    if end < 0:
        return "", ""  # still thinking when the reply ended: no answer was given
    return stripped[len(_THINK) : end].strip(), stripped[end + len(_THOUGHT) :]


def _in_tags(answer: str) -> ParsedAction:
    start = answer.find(_OPEN)
    if start < 0:
        return ParsedAction(text=answer.strip(), valid=False, reason=f"no {_OPEN} in the reply")
    start += len(_OPEN)
    end = answer.find(_CLOSE, start)
    if end < 0:
        return ParsedAction(
            text=answer[start:].strip(), valid=False, reason=f"{_OPEN} is never closed"
        )
    inner = answer[start:end]
    if (nested := inner.rfind(_OPEN)) >= 0:
        return ParsedAction(
            text=inner[nested + len(_OPEN) :].strip(),
            valid=False,
            reason=f"{_OPEN} is opened twice",
        )
    return _non_empty(inner)


def _in_json(answer: str) -> ParsedAction:
    def refuse(reason: str) -> ParsedAction:
        return ParsedAction(text=answer.strip(), valid=False, reason=reason)

    start = answer.find("{")
    if start < 0:
        return refuse("no JSON object in the reply")
    try:
        value, _ = json.JSONDecoder().raw_decode(answer, start)
    except (ValueError, RecursionError) as error:  # too deeply nested raises the latter
        return refuse(f"no JSON object in the reply: {error}")
    action = cast(dict[str, object], value).get("action")
    if not isinstance(action, str):
        return refuse('the JSON object has no text under "action"')
    return _non_empty(action)


def _in_plain(answer: str) -> ParsedAction:
    """The first line that is not empty; a full stop at its end closes a sentence, no action."""
    line = next((line for line in answer.splitlines() if line.strip()), "")
    return _non_empty(line.strip().removesuffix("."))


def _non_empty(action: str) -> ParsedAction:
    text = action.strip()
    return ParsedAction(text=text, valid=bool(text), reason="" if text else "the action is empty")


def _among(text: str, admissible: Sequence[str]) -> ParsedAction:
    if text in admissible:
        return ParsedAction(text=text, valid=True)
    wanted = _folded(text)
    for candidate in admissible:
        if _folded(candidate) == wanted:
            return ParsedAction(text=candidate, valid=True)
    return ParsedAction(
        text=text,
        valid=False,
        reason=f"not one of the {len(admissible)} admissible actions",
    )


_ARTICLES = frozenset({"a", "an", "the"})


def _folded(text: str) -> str:
    """`text` for comparing: "the red box" means what the game lists as "red box"."""
    return " ".join(word for word in text.casefold().split() if word not in _ARTICLES)
