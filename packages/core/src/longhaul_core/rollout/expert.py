"""An environment's own expert in the place of a policy.

The run's memory composes each prompt and its parser reads each reply, so an expert's episode is
one that the policy could have played, and what is imitated is what it will be shown.
"""

from longhaul_core.actions import ActionFormat, ActionParser, Parser, split_thinking, written
from longhaul_core.environment import Advised, Environment, EnvironmentFactory
from longhaul_core.errors import (
    EnvironmentFailure,
    EnvironmentTimeout,
    MemoryFailure,
    PolicyFailure,
    attributed_to,
)
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.deadline import deadline
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.types import Call, Task

__all__ = ["EXPERT", "ExpertActing", "reply_for"]

EXPERT = "expert"
"""The model that an expert's calls name."""


class ExpertActing:
    """Asks the expert of one episode's environment. An `Acting`, and what makes the environment."""

    def __init__(
        self, *, make_environment: EnvironmentFactory, parser: Parser, seconds: float
    ) -> None:
        """An expert for one episode.

        Args:
            make_environment: Makes an `Advised` environment.
            parser: Says in what form actions are written.
            seconds: Longest that one piece of advice may take.
        """
        self._make_environment = make_environment
        self._parser = parser
        self._seconds = seconds
        self._environment: Environment | None = None

    def make_environment(self, task: Task) -> Environment:
        """See `EnvironmentFactory`."""
        self._environment = self._make_environment(task)
        return self._environment

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """See `Acting.act`. The call has no tokens, and is not trained.

        Raises:
            EnvironmentFailure: The environment has no expert, or it sees no way to success.
            EnvironmentTimeout: It did not answer in time.
            PolicyFailure: Its action cannot be written in the run's form.
        """
        environment = self._environment
        if not isinstance(environment, Advised):
            raise EnvironmentFailure(f"{session.task.environment} has no expert to be asked")
        async with deadline(
            self._seconds,
            "environment.expert_action",
            failure=EnvironmentFailure,
            late=EnvironmentTimeout,
        ):
            action = await environment.expert_action()
        if action is None:
            raise EnvironmentFailure(
                f"the expert sees no way to success after {session.num_steps} steps"
            )
        with attributed_to(MemoryFailure, "memory.compose"):
            messages, recalled = prompt.compose(0), prompt.recalled(0)
        reply = reply_for(action, self._parser, admissible=session.observation.admissible_actions)
        return session.record(
            Call(
                messages=messages,
                reply=reply,
                sampled=None,
                model=EXPERT,
                trained=False,
                recalled_steps=recalled,
            )
        )


def reply_for(action: str, parser: Parser, *, admissible: tuple[str, ...] | None = None) -> str:
    """The shortest reply from which `parser` reads an action: what follows the run's prefix.

    A thought that the prompt began is closed, and says nothing.

    Raises:
        PolicyFailure: There is none: the action holds marks of the form, a thought is required, or
            the parser is one of the user's own.
    """
    if not isinstance(parser, ActionParser):
        raise PolicyFailure(
            "actions.format is a parser of your own, which reads actions and writes none: what an "
            "expert or a person did is written as tags, json, plain, react or tool_call"
        )
    prefix, whole = parser.reply_prefix, written(action, parser.format)
    if split_thinking(prefix + whole) == ("", ""):
        reply = f"\n</think>\n\n{whole}"
    elif whole.startswith(prefix):
        reply = whole.removeprefix(prefix)
    elif parser.format is ActionFormat.PLAIN and not prefix[-1:].isspace():
        reply = f" {whole}"  # the prefix is a lead-in, such as "The next action is to"
    else:
        reply = whole
    found = parser.parse(reply, admissible)
    if not found.valid or found.text != action:
        reason = found.reason or f"it reads as {found.text!r}"
        raise PolicyFailure(
            f"the action {action!r} cannot be written as actions.format = "
            f'"{parser.format.value}" asks: {reason}'
        )
    return reply
