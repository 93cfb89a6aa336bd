"""One episode that a person plays.

It is `run_episode`, which plays every other episode too: the person is the policy, whose reply it
waits for. So what is stored is what the loop would store for a model with the same actions.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from longhaul_core.actions import ActionFormat, ActionParser, ParsedAction, written
from longhaul_core.environment import (
    Environment,
    EnvironmentDescription,
    EnvironmentSource,
    StepResult,
)
from longhaul_core.errors import Abandoned
from longhaul_core.memory import build_memory, environment_template
from longhaul_core.policy import HostedReply, NoTokens, ReadReply
from longhaul_core.rollout import (
    Agent,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSpec,
    run_episode,
)
from longhaul_core.types import (
    FailedEpisode,
    FailureCause,
    Message,
    Observation,
    Sampling,
    Task,
    Tool,
)

__all__ = [
    "FORMAT",
    "MEMORY",
    "PERSON",
    "STEP_SECONDS",
    "Game",
    "GameState",
    "Stage",
    "Turn",
    "Wait",
]

PERSON = "person"
"""What a person's calls are stored under, as a model's are under its name."""
FORMAT = ActionFormat.TAGS
MEMORY, MEMORY_SIZE = "window", 2
"""How prompts are composed and replies written: as in a run that says nothing of either."""
RESET_SECONDS, STEP_SECONDS = 300.0, 120.0
"""A person waits longer than a run would, e.g. for a world that is drawn at its first reset."""
NO_LIMIT = 1_000_000_000
"""Tokens of a prompt: a person's are not counted."""

Stage = Literal["opening", "asked", "working", "over"]
"""`opening`: the environment is started. `asked`: the person is to act. `working`: the environment
is. `over`: the episode has ended and was stored, or was given up before its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was done in one step, and what came of it."""

    action: str
    """As the environment was given it."""
    valid: bool
    reason: str
    """Why it is not valid; empty if it is."""
    reward: float


@dataclass(frozen=True, slots=True)
class Wait:
    """What an episode waits for where it does not wait for the person."""

    what: str
    """E.g. `longhaul/TextCraft-v0 to start`."""
    most_seconds: float
    """When the wait is given up."""
    since: float = field(default_factory=time.monotonic)
    """By the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameState:
    """An episode as it stands."""

    stage: Stage = "opening"
    wait: Wait | None = None
    """None while the person is asked, and once it is over."""
    observation: Observation | None = None
    """The newest; None before the first."""
    messages: tuple[Message, ...] = ()
    """The prompt that a model would be asked with now; that of the last step once it is over."""
    turns: tuple[Turn, ...] = ()
    outcome: EpisodeOutcome | None = None
    """The record, once it is over; None if there is nothing to keep."""
    episode_id: str | None = None
    """Its key in the store, once it is there."""
    problem: str = ""
    """Why the store has not taken it; empty otherwise."""


class Game:
    """An episode, the person who acts in it, and those who look at it.

    Everything but `state` belongs to one event loop.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        *,
        source: EnvironmentSource,
        description: EnvironmentDescription,
        horizon: int,
        idle_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        """Describe the episode; nothing is started yet.

        Args:
            spec: The task, the place among the episodes of the run (`group_index`), and the stored
                episode of this horizon that the person goes on with, if there is one.
            source: Makes the environment.
            description: Of it.
            horizon: Most steps, at least 1.
            idle_seconds: The episode is abandoned when the person has not acted for so long.
            on_change: Called whenever `state` is another.
        """
        self.spec = spec
        self.horizon = horizon
        self.state = GameState(wait=Wait(f"{spec.task.environment} to start", RESET_SECONDS))
        self._source = source
        self._idle_seconds = idle_seconds
        self._on_change = on_change
        self._stop = asyncio.Event()
        self._silence = ""
        self._left = False
        self._answer: asyncio.Future[str] | None = None
        self._parsed = ParsedAction(text="", valid=False)
        self._parser = ActionParser(format=FORMAT)
        template = environment_template(description.prompt, form=self._parser.instruction)
        self._build_memory = partial(build_memory, MEMORY, size=MEMORY_SIZE, template=template)

    @property
    def number(self) -> int:
        """0-based place of the episode among those of its run."""
        return self.spec.group_index

    async def play(self) -> EpisodeOutcome | None:
        """Play to the end; None where the person left before the first step.

        An episode that the person left later is truncated, like one that reached its horizon.
        """
        outcome = await run_episode(
            self.spec,
            agent=Agent(
                policy=self,
                renderer=NoTokens(),
                parser=self._parser,
                build_memory=self._build_memory,
            ),
            make_environment=lambda task: _Watched(self._source.make(task), game=self),
            limits=EpisodeLimits(
                horizon=self.horizon,
                max_prompt_tokens=NO_LIMIT,
                reset_deadline_seconds=RESET_SECONDS,
                step_deadline_seconds=STEP_SECONDS,
                policy_deadline_seconds=self._idle_seconds + STEP_SECONDS,
            ),
            stop=self._stop,
        )
        if not outcome.steps and self._left:
            return None
        if isinstance(outcome, FailedEpisode) and self._silence:
            return replace(outcome, cause=FailureCause.ENVIRONMENT_TIMEOUT, message=self._silence)
        return outcome

    def act(self, step: int, action: str) -> bool:
        """Act in a step, counted from 0; whether the episode waited for that.

        A press that comes twice acts once.
        """
        waits = self._answer is not None and not self._answer.done()
        if self._answer is None or not waits or step != len(self.state.turns):
            return False
        self._answer.set_result(action)
        self._work("to answer", STEP_SECONDS)
        return True

    def leave(self) -> None:
        """Abandon the episode, once the environment has answered what it was asked."""
        if self.state.stage == "over":
            return
        self._left = True
        if not self.state.turns and self.state.stage != "working":
            self._stop.set()
        elif self._answer is not None and not self._answer.done():
            self._answer.set_exception(_left())
        self._work("to end", STEP_SECONDS)

    def stop(self, reason: str) -> None:
        """End the episode at once: its environment does not answer. It has failed.

        Args:
            reason: In words, for the record.
        """
        self._silence = reason
        self._stop.set()

    def keeping(self, most_seconds: float) -> None:
        """Report that it was played, and is being stored.

        Args:
            most_seconds: How long a store that is held or away is waited for.
        """
        wait = Wait("the store to take the episode", most_seconds)
        self._show(replace(self.state, stage="working", wait=wait))

    def ended(
        self, outcome: EpisodeOutcome | None, *, episode_id: str | None, problem: str = ""
    ) -> None:
        """Report what became of it."""
        self._show(
            replace(
                self.state,
                stage="over",
                wait=None,
                outcome=outcome,
                episode_id=episode_id,
                problem=problem,
            )
        )

    async def reply(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[Tool] = ()
    ) -> HostedReply:
        """What the person does, as a model would write it; see `HostedPolicy.reply`.

        Raises:
            Abandoned: The person left, or did nothing for too long.
        """
        if self._left:
            raise _left()
        self._answer = asyncio.get_running_loop().create_future()
        self._show(replace(self.state, stage="asked", wait=None, messages=tuple(messages)))
        try:
            async with asyncio.timeout(self._idle_seconds):
                action = await self._answer
        except TimeoutError:
            self._left = True
            raise Abandoned(f"nobody acted for {self._idle_seconds:g} s") from None
        finally:
            self._answer = None
        text = written(action, FORMAT)
        observation = self.state.observation
        self._parsed = self._parser.parse(text, observation and observation.admissible_actions)
        return HostedReply(read=ReadReply(text=text), model=PERSON)

    def observed(self, observation: Observation) -> None:
        """Report the first observation."""
        self._show(replace(self.state, observation=observation))

    def stepped(self, action: str, result: StepResult) -> None:
        """Report what an action brought."""
        reason, branch, at = self._parsed.reason, self.spec.branch, len(self.state.turns)
        if branch is not None and at < branch.step_index:
            valid = branch.replayed[at].action_valid
            reason = "" if valid else "it was not valid when it was stored"
        elif self._parsed.valid and not result.action_accepted:
            reason = "the environment did not accept it"
        turn = Turn(action=action, valid=not reason, reason=reason, reward=result.reward)
        self._show(
            replace(self.state, observation=result.observation, turns=(*self.state.turns, turn))
        )

    def _work(self, until: str, most_seconds: float) -> None:
        wait = Wait(f"{self.spec.task.environment} {until}", most_seconds)
        self._show(replace(self.state, stage="working", wait=wait))

    def _show(self, state: GameState) -> None:
        self.state = state
        self._on_change()


class _Watched:
    """An environment whose answers the game sees before the loop does. An `Environment`."""

    def __init__(self, environment: Environment, *, game: Game) -> None:
        self._environment = environment
        self._game = game

    async def open(self) -> None:
        await self._environment.open()

    async def reset(self, task: Task) -> Observation:
        observation = await self._environment.reset(task)
        self._game.observed(observation)
        return observation

    async def step(self, action: str) -> StepResult:
        result = await self._environment.step(action)
        self._game.stepped(action, result)
        return result

    async def close(self) -> None:
        await self._environment.close()


def _left() -> Abandoned:
    return Abandoned("the person left")
