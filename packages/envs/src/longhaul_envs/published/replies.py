"""How replies are read where a published prompt asks for a form of its own.

A run names them as `actions.format = "longhaul_envs.published.replies:search_tags"`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longhaul_core.actions import MAX_ACTION_CHARACTERS, ParsedAction, Parser, split_thinking
from longhaul_core.text import well_formed

__all__ = ["fenced", "search_tags"]


def search_tags(*, require_thinking: bool, reply_prefix: str) -> Parser:
    """Reads `<search>…</search>` or `<answer>…</answer>`, one of them and once."""
    asked = "Write <search>your query</search> or <answer>your answer</answer>."
    return _Reader(_tag, asked, require_thinking=require_thinking, reply_prefix=reply_prefix)


def fenced(*, require_thinking: bool, reply_prefix: str) -> Parser:
    """Reads what stands between the first two rows of three backticks."""
    asked = "Write one action as ```your action```."
    return _Reader(_fence, asked, require_thinking=require_thinking, reply_prefix=reply_prefix)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A `Parser` of the answer, which is what follows the last thought."""

    read: Callable[[str], str]
    """The action of an answer; empty where there is none."""
    instruction: str
    require_thinking: bool
    reply_prefix: str

    def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
        """See `Parser.parse`; whether an action is admissible is the environment's to say."""
        thought, answer = split_thinking(self.reply_prefix + reply)
        action = self.read(answer)
        reason = "" if action else f"no such action in the reply, or several: {self.instruction}"
        if action and self.require_thinking and not thought:
            reason = "no <think>…</think> before the action"
        text = well_formed(action or answer.strip())[:MAX_ACTION_CHARACTERS]
        return ParsedAction(text=text, valid=not reason, reason=reason)


def _tag(answer: str) -> str:
    kinds = [kind for kind in ("search", "answer") for _ in range(answer.count(f"<{kind}>"))]
    if len(kinds) != 1:
        return ""
    (kind,) = kinds
    written, closed, _ = answer.partition(f"<{kind}>")[2].partition(f"</{kind}>")
    return f"<{kind}>{written.strip()}</{kind}>" if closed and written.strip() else ""


def _fence(answer: str) -> str:
    parts = answer.split("```", 2)
    return parts[1].strip() if len(parts) > 2 else ""
