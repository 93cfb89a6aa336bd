"""What a program is to an episode: something that is started, calls a gateway, and ends."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict
from urllib.parse import urlsplit

from longhaul_core.types import Task
from longhaul_trainer.gateway.exchange import CreditReport

__all__ = ["ClientArguments", "Endpoint", "Leavings", "Program"]


class ClientArguments(TypedDict):
    """Arguments of a vendor's client."""

    base_url: str
    api_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a program's calls of one episode go. A function is called with it.

    A function shares the gateway's event loop, so it asks with asynchronous clients
    (`openai.AsyncOpenAI(**endpoint.openai)`); `step` and `reward` go round HTTP.
    """

    environ: Mapping[str, str]
    """Environment variables that a command is given: addresses, and the key."""
    report: Callable[[CreditReport], None]
    """What the program says of its step."""
    report_reward: Callable[[float, bool | None], None]
    """What the program says of the episode as a whole: reward and success."""

    @property
    def key(self) -> str:
        """What every request carries; dead when the episode has ended."""
        return self.environ["LONGHAUL_KEY"]

    @property
    def host(self) -> str:
        """Name or IP address at which the gateway is reached."""
        return urlsplit(self.environ["LONGHAUL_URL"]).hostname or ""

    @property
    def openai(self) -> ClientArguments:
        """Arguments of `openai.AsyncOpenAI`."""
        return {"base_url": self.environ["OPENAI_BASE_URL"], "api_key": self.key}

    @property
    def anthropic(self) -> ClientArguments:
        """Arguments of `anthropic.AsyncAnthropic`."""
        return {"base_url": self.environ["ANTHROPIC_BASE_URL"], "api_key": self.key}

    def step(
        self,
        *,
        reward: float | None = None,
        anchor_state: str | None = None,
        done: bool = False,
        train: bool = True,
        agent: str = "",
    ) -> None:
        """Report on the step, as `longhaul.step` does in a command."""
        self.report(
            CreditReport(
                reward=reward, anchor_state=anchor_state, done=done, train=train, agent=agent
            )
        )

    def reward(self, value: float, *, success: bool | None = None) -> None:
        """Report on the episode, as `longhaul.reward` does in a command."""
        self.report_reward(value, success)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leavings:
    """What is there when a program has ended by itself."""

    result: object = None
    """What a function returned."""
    printed: str = ""
    """The end of a command's standard output, for its result."""
    output: str = ""
    """The last 4 kB of what a command printed, errors included, for people and graders."""
    exit_code: int | None = None
    """A command's; below 0 the signal that ended it. None for a function, and for a command that
    was ended because the episode was over."""
    folder: Path | None = None
    """The working folder of a command, there until the episode is graded."""


class Program(Protocol):
    """Plays episodes by itself. Shared by many episodes of one event loop."""

    def check(self) -> None:
        """Refuse what cannot be started, before a run.

        Raises:
            ConfigError: Names what is missing.
        """
        ...

    def run(
        self, task: Task, *, endpoint: Endpoint, enough: asyncio.Event | None = None
    ) -> AbstractAsyncContextManager[Leavings]:
        """Start it, and wait until it has ended, with all that it started.

        The block has what it left, which is removed afterwards. Cancelled, it ends the program.

        Args:
            task: What is to be done.
            endpoint: Where its calls go.
            enough: Once it is set the program is ended, which is no failure: the episode is over.

        Raises:
            ProgramFailure: It could not be started, or raised.
            ProgramTimeout: It did not end within its deadline.
            ProgramLimit: It went beyond its memory, processes or output.
        """
        ...

    async def close(self) -> None:
        """End what serves all episodes."""
        ...
