"""Prompts of actions that are calls of an environment's tools.

A memory shows an earlier reply as a text, and what followed as a user's message. Here they become
what the model was trained to read: a reply that calls a tool, and the tool's result. The chat
template is given the tools, and writes all of it in the model's own syntax.
"""

from collections.abc import Sequence
from dataclasses import replace

from longhaul_core.policy import ChatRenderer, Prompt, ReadReply, Renderer, offers
from longhaul_core.rollout.program_calls import as_message
from longhaul_core.types import Call, Message, Tool

__all__ = ["ToolPrompts"]


class ToolPrompts:
    """The prompts of one episode's actions, and the replies to them."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        """Of an episode in which nothing was called yet.

        Args:
            tools: That the environment offers.
        """
        self.tools = tools
        self._turns: list[tuple[Call, Message]] = []

    def prompt(self, messages: Sequence[Message], renderer: Renderer) -> Prompt:
        """A memory's messages with calls and results in their places, and their tokens.

        Where they go on from an earlier call, its tokens stay as they are.

        Raises:
            RendererFailure: The model's template cannot write them.
            TypeError: The renderer is no `ChatRenderer`.
        """
        if not offers(renderer, ChatRenderer):
            raise TypeError(f"a {type(renderer).__name__} renders no prompts with tools")
        shown = self.shown(messages)
        for call, reply in reversed(self._turns):
            new = shown[len(call.messages) + 1 :]
            if not new or call.sampled is None or shown[: -len(new)] != (*call.messages, reply):
                continue
            added = renderer.added(call, new, tools=self.tools)
            if added is None:
                break
            known = (*call.sampled.prompt_tokens, *call.sampled.action_tokens)
            return Prompt(messages=shown, tokens=(*known, *added))
        return Prompt(messages=shown, tokens=renderer.render_chat(shown, tools=self.tools))

    def add(self, call: Call, read: ReadReply) -> None:
        """Take in a reply, which later prompts show with its first call, the one that is done.

        Args:
            call: As it is recorded.
            read: What it asks for.
        """
        done = replace(read, tool_calls=read.tool_calls[:1])
        self._turns.append((call, as_message(done, written=call.reply)))

    def shown(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A memory's messages with calls and results in their places."""
        shown, later = list(messages), list(self._turns)
        for place in reversed(range(len(messages) - 1)):
            if messages[place].role != "assistant":
                continue
            while later and later[-1][0].reply != messages[place].text:
                later.pop()
            if not later:
                break
            _, shown[place] = later.pop()
            if shown[place].tool_calls:
                (asked,) = shown[place].tool_calls
                shown[place + 1] = replace(shown[place + 1], role="tool", tool_call_id=asked.id)
        return tuple(shown)
