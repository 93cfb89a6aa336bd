"""The steps of an episode while it is played, and what is recorded of them."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from longhaul_core.errors import HorizonReached
from longhaul_core.rollout.packed_calls import PackedCall
from longhaul_core.rollout.seeds import call_seed, step_seed
from longhaul_core.types import Call, Observation, Sampling, Step

__all__ = ["EpisodeSteps", "StepDraft"]


@dataclass(slots=True)
class StepDraft:
    """A step that may still change."""

    index: int
    """In the order of opening. Steps that come to nothing are not in the record."""
    observation: Observation
    calls: dict[int, Call | PackedCall] = field(default_factory=dict[int, Call | PackedCall])
    """By the order in which they were requested; those in flight are not in it yet."""
    num_asked: int = 0
    num_in_flight: int = 0
    samplings: dict[int, Sampling] = field(default_factory=dict[int, Sampling])
    """How the calls of a program were drawn, by the order in which they were requested."""
    action: str | None = None
    action_valid: bool = False
    reward: float = 0.0
    environment_seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether nothing came of it, and nothing will of what is in flight."""
        return not self.calls and not self.num_in_flight and self.action is None

    def add(self, call: Call | PackedCall) -> None:
        """Take a call that nobody asked for here."""
        self.calls[self.num_asked] = call
        self.num_asked += 1


class EpisodeSteps:
    """The steps of one episode, in the order in which they were opened."""

    def __init__(self, *, horizon: int, seed: int) -> None:
        """No step yet.

        Args:
            horizon: Most steps, at least 1.
            seed: The episode's.
        """
        self._horizon = horizon
        self._seed = seed
        self._steps: list[StepDraft] = []
        self._abandoned: set[int] = set()
        """Steps of a program in which nothing was done, and nothing is any more."""
        self._newest_acted = -1
        self.num_acted = 0
        """Steps that were acted in."""

    @property
    def awaits_action(self) -> bool:
        """Whether nothing was done yet in the newest step."""
        return bool(self._steps) and self._steps[-1].action is None

    @property
    def acted(self) -> tuple[int, ...]:
        """Indices of the steps that were acted in, in their order in the record."""
        return tuple(step.index for step in self._steps if step.action is not None)

    @property
    def num_calls_left_out(self) -> int:
        """Calls of steps that were not acted in."""
        return sum(step.num_asked for step in self._steps if step.action is None)

    def newest(self) -> StepDraft:
        """The newest step.

        Raises:
            RuntimeError: Nothing was observed yet.
        """
        if not self._steps:
            raise RuntimeError("nothing was observed yet; observe first")
        return self._steps[-1]

    def of_loop(self) -> StepDraft:
        """The newest step, if the horizon allows one as late.

        Raises:
            HorizonReached: It does not.
            RuntimeError: Nothing was observed yet.
        """
        step = self.newest()
        if step.index >= self._horizon:
            raise self._horizon_reached()
        return step

    def of_program(self, step_index: int) -> StepDraft:
        """A step by its index; where it had been abandoned it takes its place again.

        Raises:
            HorizonReached: Others have filled the horizon.
            RuntimeError: There is no such step.
        """
        step = self.at(step_index)
        if step_index in self._abandoned:
            self._require_place()
            self._abandoned.remove(step_index)
        return step

    def at(self, step_index: int) -> StepDraft:
        """A step by its index.

        Raises:
            RuntimeError: There is no such step.
        """
        if not 0 <= step_index < len(self._steps):
            raise RuntimeError(f"there is no step {step_index}: {len(self._steps)} were opened")
        return self._steps[step_index]

    def append(self, observation: Observation, *, within_horizon: bool) -> StepDraft:
        """Open a step.

        Args:
            observation: What it shows.
            within_horizon: Refuse one more than the horizon allows, those that wait for their
                action included.

        Raises:
            HorizonReached: There are as many as it allows.
        """
        if within_horizon:
            self._require_place()
        self._steps.append(StepDraft(index=len(self._steps), observation=observation))
        return self._steps[-1]

    @contextmanager
    def call_in_flight(self, step: StepDraft) -> Generator[int]:
        """The place of a call in its step, which keeps a place itself while the call is made."""
        place = step.num_asked
        step.num_asked += 1
        step.num_in_flight += 1
        try:
            yield place
        finally:
            step.num_in_flight -= 1
            self.abandon(step)

    def abandon(self, step: StepDraft) -> None:
        """Let a step take no place, if nothing came of it."""
        if step.is_empty:
            self._abandoned.add(step.index)

    def act(self, step: StepDraft, action: str) -> None:
        """Note what was done in a step.

        Raises:
            RuntimeError: It has its action.
        """
        if step.action is not None:
            raise RuntimeError(f"step {step.index} has its action already: {step.action!r}")
        step.action = action
        self.num_acted += 1
        self._newest_acted = max(self._newest_acted, step.index)

    def pay(self, value: float, step_index: int | None) -> None:
        """Add to the reward of a step; of the newest that was acted in, without an index.

        Raises:
            ValueError: The value is not finite.
            RuntimeError: The step was not acted in.
        """
        if not math.isfinite(value):
            raise ValueError(f"reward must be finite, got {value}")
        index = self._newest_acted if step_index is None else step_index
        if not 0 <= index < len(self._steps) or self._steps[index].action is None:
            raise RuntimeError(f"step {index} cannot be paid: {self.num_acted} steps were acted in")
        self._steps[index].reward += value

    def seed(self, *, step_index: int, call_index: int) -> int:
        """The seed of a call, by its place."""
        return call_seed(step_seed(self._seed, step_index=step_index), call_index=call_index)

    def recorded(self) -> tuple[Step, ...]:
        """The steps that were acted in; numbered without a hole, and so are their conversations."""
        conversations: dict[int, int] = {}
        acted = [step for step in self._steps if step.action is not None]
        return tuple(
            Step(
                index=index,
                observation=step.observation,
                calls=self._recorded_calls(step, index=index, conversations=conversations),
                action=step.action,
                action_valid=step.action_valid,
                reward=step.reward,
                environment_seconds=step.environment_seconds,
            )
            for index, step in enumerate(acted)
            if step.action is not None
        )

    def _recorded_calls(
        self, step: StepDraft, *, index: int, conversations: dict[int, int]
    ) -> tuple[Call, ...]:
        """The calls of a step as they are recorded.

        Args:
            step: That was acted in.
            index: In the record.
            conversations: Conversation → its number in the record; new ones are added.
        """
        calls: list[Call] = []
        for place in sorted(step.calls):
            kept = step.calls[place]
            call = kept.whole() if isinstance(kept, PackedCall) else kept
            number = conversations.setdefault(call.conversation, len(conversations))
            if number != call.conversation:
                call = replace(call, conversation=number)
            drawn = step.samplings.get(place)
            if drawn is not None and call.sampling is None:
                expected = self.seed(step_index=index, call_index=len(calls))
                if drawn.seed != expected:  # others failed: its place no longer gives its seed
                    call = replace(call, sampling=drawn)
            calls.append(call)
        return tuple(calls)

    def _require_place(self) -> None:
        if len(self._steps) - len(self._abandoned) >= self._horizon:
            raise self._horizon_reached()

    def _horizon_reached(self) -> HorizonReached:
        return HorizonReached(f"the episode has its {self._horizon} steps")
