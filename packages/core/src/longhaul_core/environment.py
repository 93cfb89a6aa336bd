"""What the episode loop needs from an environment, and nothing more.

Environments themselves are `gymnasium.Env`s (see `longhaul_core.gym`, the adapter
that makes one of these out of any of those); this protocol is the asynchronous side
that the loop awaits, so a local process and a remote server look alike.

Who wants to know more of an environment than an episode shows asks an `EnvironmentSource`:
what it is, which tasks it has, and for one to be played. The trainer, its commands, the
contract check and the benchmarks ask nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from longhaul_core.types import Observation, Split, Task, Tool

LARGEST_REWARD = 1e30
"""Of a step, in size: estimators add rewards up and square them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came back from one action."""

    observation: Observation
    """Shown to the policy next; after the last action, the final observation."""
    reward: float
    """For this step alone."""
    terminated: bool = False
    """The task itself ended."""
    truncated: bool = False
    """The environment's own limit ended the episode."""
    success: bool = False
    """Whether the task counts as solved."""
    action_accepted: bool = True
    """False if the environment did not understand the action."""

    def __post_init__(self) -> None:
        """Refuse what cannot be learned from.

        Raises:
            ValueError: If the reward is not a number within `LARGEST_REWARD`, or the step ends the
                episode in both ways.
        """
        if not math.isfinite(self.reward):
            raise ValueError(f"reward must be finite, got {self.reward}")
        if abs(self.reward) > LARGEST_REWARD:
            raise ValueError(
                f"reward must be at most {LARGEST_REWARD:g} in size, got {self.reward}: learning "
                "adds rewards up and squares them, so pay smaller ones"
            )
        if self.terminated and self.truncated:
            raise ValueError(
                "an episode ends in one way, and this step is both terminated and truncated; say "
                "truncated = False where the task itself has ended"
            )


class Environment(Protocol):
    """One episode's world. Build it, run it once, close it.

    The loop never calls `reset` twice: a fresh episode is a fresh object, so no
    state leaks from one episode to the next.
    """

    async def open(self) -> None:
        """Wait for what the episode will need, e.g. a free worker process.

        The loop awaits this once, before `reset`. Deadlines of an episode begin after
        it, because waiting one's turn is no fault of the environment.
        """
        ...

    async def reset(self, task: Task) -> Observation:
        """Start the episode and return the first observation.

        The same task and the same actions must give the same episode;
        `longhaul_envs.check` holds every environment to it.
        """
        ...

    async def step(self, action: str) -> StepResult:
        """Apply `action`, the parsed text, and advance by one step."""
        ...

    async def close(self) -> None:
        """Release what the episode holds.

        Safe to call twice, after a failure, and if `open` was never reached.
        """
        ...


class EnvironmentFactory(Protocol):
    """Makes a fresh environment for each episode."""

    def __call__(self, task: Task) -> Environment:
        """Return an environment that has not been reset."""
        ...


@runtime_checkable
class Advised(Protocol):
    """An environment whose own expert can be asked what to do, between two steps."""

    async def expert_action(self) -> str | None:
        """What it would do now; None where it sees no way to success from here.

        Raises:
            EnvironmentFailure: The environment has no expert, or it failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPrompt:
    """How an environment introduces itself to a language model."""

    system: str
    """What the world is and how its observations read."""
    instruction: str
    """One line that ends every prompt: what is to be written now."""
    actions: str = ""
    """How actions are written: added to `system` where a run does not list the admissible ones.
    Empty where `system` says it in any case."""
    calls: str = ""
    """Which tools there are and how they are called, in words: added to `system` unless the model's
    chat template says it (`actions.format = "tool_call"`). Empty for an environment without tools.
    """


class Determinism(StrEnum):
    """What of an episode the same task repeats, on every machine and in any order."""

    EXACT = "exact"
    """The whole episode, under the same actions."""
    FIRST_OBSERVATION = "first_observation"
    """The first observation alone: what follows may depend on time or chance."""
    NONE = "none"
    """Nothing, such as a live site or a server that draws for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDescription:
    """What is known of an environment, under its options, without playing it.

    Plain values, so that `to_json` is what a server answers.
    """

    id: str
    """What a run names in `environment.id`, and a task in `Task.environment`."""
    version: str
    """Of its rules under these options: `Task.version` of its tasks."""
    summary: str = ""
    """One line for people."""
    prompt: EnvironmentPrompt | None = None
    """None if it leaves the introduction to the run."""
    actions: str = ""
    """What an action looks like, in words; empty if it does not say."""
    episodes_per_process: int = 1
    """Episodes that one process may play at once, at least 1. More than 1 is a promise that
    instances share no state and never block each other for long."""
    determinism: Determinism = Determinism.EXACT
    """What of an episode the same task repeats."""
    max_observation_characters: int | None = None
    """Longest observation, where there is one that it keeps to."""
    shows_pictures: bool = False
    """Whether its observations have pictures, which only some models read."""
    picture_pixels: int | None = None
    """Most pixels of an observation's pictures, where it knows them before it is played."""
    tools: tuple[Tool, ...] = ()
    """What an action may call, for the model's chat template: `step` takes
    `{"name": …, "arguments": {…}}` as text. Empty for an environment whose actions are words."""

    def __post_init__(self) -> None:
        if self.episodes_per_process < 1:
            raise ValueError(
                f"episodes_per_process of {self.id!r} must be at least 1, got "
                f"{self.episodes_per_process}"
            )

    def to_json(self) -> str:
        """The description as text."""
        return _DESCRIPTION.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "EnvironmentDescription":
        """What `to_json` wrote.

        Raises:
            ValueError: If `text` is no description.
        """
        try:
            return _DESCRIPTION.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"not a description of an environment: {error}") from error


_DESCRIPTION = TypeAdapter(EnvironmentDescription)


@runtime_checkable
class EnvironmentSource(Protocol):
    """An environment under its options, as whoever runs episodes asks for it.

    To describe it and to list its tasks must not build it: an environment is built to be
    played.
    """

    def describe(self) -> EnvironmentDescription:
        """What it is; the same answer each time.

        Raises:
            ConfigError: If it cannot be had under these options.
        """
        ...

    def tasks(self, split: Split) -> Sequence[Task]:
        """Every task of `split`, in the same order on every machine; splits share no content.

        Raises:
            ConfigError: If there is none.
        """
        ...

    def make(self, task: Task) -> Environment:
        """A fresh environment for one episode of `task`, not yet opened."""
        ...
