"""Reading the action out of a reply, with a verdict on its validity.

A reply that breaks the rules still gives a text, because the environment is the
judge of what happens next; `valid` says whether to hold it against the policy.
Everything is found by `str.find` and the JSON decoder: time is linear in the reply,
whatever a model writes. What the environment is given is always text that UTF-8 can
carry, of at most `MAX_ACTION_CHARACTERS`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from longhaul_core.text import well_formed

__all__ = [
    "MAX_ACTION_CHARACTERS",
    "ActionFormat",
    "ActionParser",
    "ParsedAction",
    "called",
    "default_instruction",
    "with_answer",
    "written",
]

MAX_ACTION_CHARACTERS = 1_000_000
"""A longer action is invalid, and cut: no environment's channel need carry more."""

_MAX_OBJECTS = 64
"""Braces that are tried as the beginning of a JSON object, each in time linear in the reply."""

_OPEN, _CLOSE = "<action>", "</action>"
_THINK, _THOUGHT = "<think>", "</think>"
_ACTION = "Action:"


class ActionFormat(StrEnum):
    """How the policy is asked to write an action."""

    TAGS = "tags"
    """`<action>go north</action>`"""
    JSON = "json"
    """`{"action": "go north"}`, the first such object; other keys are allowed, and braces before
    it that are no object or one without an action."""
    PLAIN = "plain"
    """The first line that is not blank."""
    REACT = "react"
    """`Thought:`, a thought, `Action:` once, and the action, which is one line."""
    TOOL_CALL = "tool_call"
    """A call of one of the environment's tools, which the chat template lists: the first one of the
    reply, in the model's syntax. In a text it is the first object with a `name` and `arguments` (or
    `parameters`, as Llama writes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAction:
    """The action of a reply."""

    text: str
    """What the environment is given: the admissible action in its own spelling if the
    reply named one, else the reply's own text of it, stripped."""
    valid: bool
    """True if the reply had the required format and, if they are known, an admissible action."""
    reason: str = ""
    """Why it is not valid, for people; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionParser:
    """Reads actions of one format.

    The action is read from the answer alone, which is what follows the last `</think>`; no part
    of a thought is ever taken for an action. So it is in every format, and however thoughts are
    written: after other words, one after the other, one within the other, or begun by the
    prompt, so that the reply holds `</think>` alone. A reply that ends within a thought has no
    answer, and is invalid. After the first action of the answer the rest of it is ignored.
    """

    format: ActionFormat = ActionFormat.TAGS
    require_thinking: bool = False
    """Whether a reply without a closed thought that says something is invalid."""
    reply_prefix: str = ""
    """What the prompt already wrote of the reply: e.g. `"<action>"`, or `"<think>"` where the chat
    template begins every reply with a thought."""

    @property
    def instruction(self) -> str:
        """See `default_instruction`."""
        return default_instruction(self.format, require_thinking=self.require_thinking)

    def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
        """The action of `reply`.

        Args:
            reply: What the policy wrote, without `reply_prefix`.
            admissible: Every action the environment accepts now; None if unknown. The one in
                the same spelling is taken, else the only one that differs in nothing but case
                and white space, else the only one to which the reply adds no more than the
                articles a, an and the ("go to the red box" for "go to red box").
        """
        found = self._found(reply, admissible)
        text = well_formed(found.text)
        if text != found.text:
            return ParsedAction(
                text=text, valid=False, reason="the action holds half of a surrogate pair"
            )
        if len(text) > MAX_ACTION_CHARACTERS:
            return ParsedAction(
                text=text[:MAX_ACTION_CHARACTERS].strip(),
                valid=False,
                reason=f"an action of {len(text)} characters exceeds the limit of "
                f"{MAX_ACTION_CHARACTERS}",
            )
        return found

    def _found(self, reply: str, admissible: Sequence[str] | None) -> ParsedAction:
        thought, answer = split_thinking(self.reply_prefix + reply)
        match self.format:
            case ActionFormat.TAGS:
                found = _in_tags(answer)
            case ActionFormat.JSON:
                found = _in_json(answer)
            case ActionFormat.PLAIN:
                # Here the prefix is a lead-in such as "The next action is to", no part of it.
                found = _in_plain(answer.removeprefix(self.reply_prefix), admissible)
            case ActionFormat.REACT:
                thought = thought or answer.partition(_ACTION)[0].replace("Thought:", "").strip()
                found = _in_react(answer)
            case ActionFormat.TOOL_CALL:
                found = _in_tool_call(answer)
        if found.valid and self.require_thinking and not thought:
            asked = "Thought:" if self.format is ActionFormat.REACT else f"{_THINK}…{_THOUGHT}"
            reason = f"no {asked} before the action"
            return ParsedAction(text=found.text, valid=False, reason=reason)
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
        case ActionFormat.REACT:
            think = "Write Thought: your thought, then" if require_thinking else "Write"
            return f"{think} one action as {_ACTION} your action"
        case ActionFormat.TOOL_CALL:
            think = f"Think inside {_THINK}…{_THOUGHT}, then call" if require_thinking else "Call"
            return f"{think} one of the tools."


def written(action: str, action_format: ActionFormat) -> str:
    """The shortest reply that asks for an action in a format.

    `parse` reads from it what it would read from a policy's: an action that itself holds the
    format's marks is not understood as it was meant.
    """
    match action_format:
        case ActionFormat.TAGS:
            return f"{_OPEN}{action}{_CLOSE}"
        case ActionFormat.JSON:
            return json.dumps({"action": action}, ensure_ascii=False)
        case ActionFormat.PLAIN:
            return action
        case ActionFormat.REACT:
            return f"{_ACTION}\n{action}"
        case ActionFormat.TOOL_CALL:
            return action


def called(name: str, arguments: str) -> str:
    """The action that a call of a tool is.

    Args:
        name: Of the tool.
        arguments: A JSON object as text; anything else is no action.
    """
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments or "{}"}}}'


def with_answer(reply: str, action: str) -> str:
    """A reply whose answer is an action; its thoughts stay as they were.

    Args:
        reply: As the policy wrote it.
        action: What was read of it.
    """
    return f"{reply.rpartition(_THOUGHT)[0]}{_THOUGHT}{action}"


def split_thinking(text: str) -> tuple[str, str]:
    """What was thought, without the tags, and the answer: what follows the last thought."""
    before, closed, answer = text.rpartition(_THOUGHT)
    if _THINK in answer:
        return "", ""  # still thinking when the reply ended: no answer was given
    if not closed:
        return "", answer
    _, opened, thought = before.partition(_THINK)
    if not opened:
        thought = before  # the prompt opened it
    return thought.replace(_THINK, "").replace(_THOUGHT, "").strip(), answer


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

    # An object is read as its pairs, which show a key that is written twice; a number that
    # Python would not read as a whole one, of 5000 digits say, is no error of the action.
    decoder = json.JSONDecoder(object_pairs_hook=list, parse_int=float)
    problem = "no JSON object in the reply"
    for value, fault in _objects(answer, decoder):
        if fault:
            problem = f"no JSON object in the reply can be read: {fault}"
            continue
        pairs = cast("list[tuple[str, object]]", value)
        actions = [entry for key, entry in pairs if key == "action"]
        if len(actions) > 1:
            return refuse(f'the JSON object has "action" {len(actions)} times')
        if actions and isinstance(actions[0], str):
            return _non_empty(actions[0])
        problem = 'no JSON object with a text under "action" in the reply'
    return refuse(problem)


def _objects(answer: str, decoder: json.JSONDecoder) -> Iterator[tuple[object, str]]:
    """The first JSON objects of a reply, each with why it cannot be read, if it cannot."""
    place = answer.find("{")
    for _ in range(_MAX_OBJECTS):
        if place < 0:
            return
        value, fault = None, ""
        try:
            value, end = decoder.raw_decode(answer, place)
        except (ValueError, RecursionError) as error:  # too deeply nested raises the latter
            # What stands within a broken object, up to where it breaks, is a part of it.
            fault, end = str(error), max(place + 1, getattr(error, "pos", 0))
        yield value, fault
        place = answer.find("{", end)


def _in_plain(answer: str, admissible: Sequence[str] | None) -> ParsedAction:
    """The first line that is not empty.

    A full stop at its end closes a sentence, no action, unless an admissible action has it.
    """
    line = next((line for line in answer.splitlines() if line.strip()), "").strip()
    if line.endswith(".") and not (admissible and _among(line, admissible).valid):
        line = line.removesuffix(".")
    return _non_empty(line)


def _in_react(answer: str) -> ParsedAction:
    """The line after the only `Action:`; blank lines between are none."""
    times = answer.count(_ACTION)
    if times != 1:
        reason = f"{times} times {_ACTION} in the reply, and one is asked for"
        return ParsedAction(text=answer.strip(), valid=False, reason=reason)
    return _non_empty(answer.partition(_ACTION)[2].strip().partition("\n")[0])


def _in_tool_call(answer: str) -> ParsedAction:
    """The first object that is a call, written anew."""
    problem = "no call of a tool in the reply"
    for value, fault in _objects(answer, json.JSONDecoder()):
        if fault:
            problem = f"no call of a tool in the reply can be read: {fault}"
            continue
        call = cast("dict[str, object]", value)
        given = call["arguments"] if "arguments" in call else call.get("parameters")
        if isinstance(call.get("name"), str) and isinstance(given, dict):
            again = {"name": call["name"], "arguments": cast("dict[str, object]", given)}
            return _non_empty(json.dumps(again, ensure_ascii=False))
    return ParsedAction(text=answer.strip(), valid=False, reason=problem)


def _non_empty(action: str) -> ParsedAction:
    text = action.strip()
    return ParsedAction(text=text, valid=bool(text), reason="" if text else "the action is empty")


def _among(text: str, admissible: Sequence[str]) -> ParsedAction:
    if text in admissible:
        return ParsedAction(text=text, valid=True)
    words = _words(text)
    meant = {each for each in admissible if _words(each) == words}
    if not meant:
        nouns = _without_articles(words)
        meant = {
            each
            for each in admissible
            if _without_articles(listed := _words(each)) == nouns
            and _adds_articles_alone(words, listed)
        }
    if len(meant) == 1:
        return ParsedAction(text=meant.pop(), valid=True)
    which = "may be any of" if meant else "not one of"
    return ParsedAction(
        text=text,
        valid=False,
        reason=f"{which} the {len(meant or admissible)} admissible actions",
    )


_ARTICLES = frozenset({"a", "an", "the"})


def _words(text: str) -> list[str]:
    return text.casefold().split()


def _without_articles(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _ARTICLES]


def _adds_articles_alone(words: Sequence[str], listed: Sequence[str]) -> bool:
    """Whether `words` are the listed ones in their order, and articles before some of them.

    The last word is no article, whatever it reads: "answer a" is not "answer".
    """
    place = 0
    for word in words:
        if place < len(listed) and word == listed[place]:
            place += 1
        elif word not in _ARTICLES:
            return False
    return place == len(listed) and bool(words) and words[-1] == listed[-1]
