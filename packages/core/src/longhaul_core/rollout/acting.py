"""How an agent arrives at an action: by one call of the policy, or by several."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from longhaul_core.actions import split_thinking
from longhaul_core.components import build_component
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.agent import Acting
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.types import Call, Message

__all__ = ["ACTINGS", "PlanThenAct", "SingleCall", "build_acting"]


class SingleCall:
    """Ask for the action, and nothing else."""

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """See `Acting.act`."""
        return await session.complete(prompt)


class PlanThenAct:
    """Ask for a plan first, and then for the action with the plan in sight.

    The plan is a call of its own: purpose `plan`, agent `planner`, trained like the action. It is
    shown in the prompt of its own step alone, so with a full history too the prompts of actions do
    not extend each other, and merged rows hold a call each.
    """

    def __init__(
        self,
        *,
        request: str = "Do not act yet. Write in one or two sentences what to do next, and why.",
    ) -> None:
        """An agent that plans.

        Args:
            request: What is asked below the observation to get a plan.
        """
        self._request = request

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """See `Acting.act`."""
        asked = prompt.changed(lambda messages: _with_line(messages, self._request))
        plan = await session.complete(asked, purpose="plan", agent="planner")
        _, text = split_thinking(plan.reply)
        line = f"Plan: {text.strip()}"
        return await session.complete(prompt.changed(lambda messages: _with_line(messages, line)))


ACTINGS: Mapping[str, Callable[[], Acting]] = {
    "single_call": SingleCall,
    "plan_then_act": PlanThenAct,
}
"""The ways of acting that ship with the framework."""


def build_acting(kind: str) -> Acting:
    """A way of acting by its name in a configuration, for all episodes.

    Args:
        kind: One of `ACTINGS`, or `package.module:name` of a class or function of one's own.

    Raises:
        ConfigError: If the kind is not known, or a way of one's own cannot be imported or made, or
            has no `act`.
    """
    made = build_component(kind, ACTINGS, setting="agent.kind", needs=("act",), arguments={})
    return cast("Acting", made)


def _with_line(messages: tuple[Message, ...], line: str) -> tuple[Message, ...]:
    """The messages with a line below the text of the last one, above its pictures."""
    *before, last = messages
    text, pictures = f"{last.text}\n{line}", last.pictures
    return (*before, replace(last, content=(text, *pictures) if pictures else text))
