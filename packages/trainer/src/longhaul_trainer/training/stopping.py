"""Which groups a process is playing, and how the trainer stops them.

Nothing here imports verl. All of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from longhaul_core.rollout import EpisodeOutcome
from longhaul_core.types import FailedEpisode, FailureCause


class Stopped(NamedTuple):
    """Episodes of one group that were stopped, and what they had cost."""

    num_episodes: int = 0
    num_tokens: int = 0
    """Read and written by the engine."""


class EpisodesInFlight:
    """The groups that a process plays; each can be stopped, once and for all."""

    def __init__(self) -> None:
        self._stops: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._num_playing: defaultdict[str, int] = defaultdict(int)
        self._stopped: dict[str, Stopped] = {}

    @contextmanager
    def playing(self, group: str) -> Generator[asyncio.Event]:
        """While the block runs an episode of `group` is in flight; the event tells it to stop."""
        self._num_playing[group] += 1
        try:
            yield self._stops[group]
        finally:
            self._num_playing[group] -= 1
            if not self._num_playing[group]:
                del self._num_playing[group]
                if group not in self._stopped:
                    del self._stops[group]

    def note(self, group: str, outcome: EpisodeOutcome) -> None:
        """Count what an episode had cost, if it was stopped."""
        if (
            not isinstance(outcome, FailedEpisode)
            or outcome.cause is not FailureCause.STOPPED_EARLY
        ):
            return
        earlier = self._stopped.get(group, Stopped())
        self._stopped[group] = Stopped(
            num_episodes=earlier.num_episodes + 1,
            num_tokens=earlier.num_tokens
            + sum(
                len(call.sampled.prompt_tokens) + len(call.sampled.action_tokens)
                for step in outcome.steps
                for call in step.calls
                if call.sampled is not None
            ),
        )

    def stop(self, groups: Collection[str]) -> Mapping[str, Stopped]:
        """Stop the episodes of `groups`, those that are still to begin included.

        A second call, after all have ended, forgets them.

        Returns:
            What was stopped of each group so far; complete once its episodes have ended. A group
            that was whole before is not in it, nor one that another process plays.
        """
        stopped_before = {group for group in groups if group in self._stopped}
        found: dict[str, Stopped] = {}
        for group in groups:
            self._stops[group].set()
            what = self._stopped.setdefault(group, Stopped())
            if what.num_episodes:
                found[group] = what
        for group in stopped_before - self._num_playing.keys():
            del self._stops[group], self._stopped[group]
        return found
