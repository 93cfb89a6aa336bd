"""Many episodes at once, each at its own pace, and played again if they fail.

A fixed number of slots bounds the episodes in flight; nobody waits for the slowest.
Work per episode does not depend on how many others wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from longhaul_core.errors import ConfigError
from longhaul_core.rollout.loop import EpisodeOutcome
from longhaul_core.rollout.seeds import retry_seed
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.types import FailedEpisode, FailureCause

__all__ = ["EpisodeResult", "EpisodeRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """One try at one episode."""

    spec: EpisodeSpec
    """As it was played: `retry` and `seed` are those of this try."""
    outcome: EpisodeOutcome


class EpisodeRunner:
    """Plays episodes, some at once. Belongs to one event loop."""

    def __init__(self, *, concurrency: int, max_retries: int = 0) -> None:
        """A runner of which every slot is free.

        Args:
            concurrency: Most episodes in flight, at least 1.
            max_retries: How often a failed episode is played again, at least 0.

        Raises:
            ConfigError: A number is out of range.
        """
        if concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {concurrency}")
        if max_retries < 0:
            raise ConfigError(f"max_retries must not be negative, got {max_retries}")
        self._slots = asyncio.Semaphore(concurrency)
        self._max_retries = max_retries

    async def play(
        self,
        spec: EpisodeSpec,
        play_once: Callable[[EpisodeSpec], Awaitable[EpisodeOutcome]],
        *,
        on_try: Callable[[EpisodeResult], Awaitable[None]] | None = None,
    ) -> EpisodeResult:
        """Play an episode when a slot is free, and again if it fails; returns the last try.

        One that is stopped is not played again. Each try has a seed of its own.

        Args:
            spec: The first try.
            play_once: Plays a try, e.g. `run_episode` with the rest of its arguments.
            on_try: Awaited after each try, the last one included, when its slot is free again,
                e.g. to store its record. What it raises ends the playing and passes.
        """
        retry = 0
        while True:
            attempt = replace(spec, retry=retry, seed=retry_seed(spec.seed, retry=retry))
            async with self._slots:
                outcome = await play_once(attempt)
            result = EpisodeResult(spec=attempt, outcome=outcome)
            if on_try is not None:
                await on_try(result)
            if (
                not isinstance(outcome, FailedEpisode)
                or outcome.cause is FailureCause.STOPPED_EARLY
                or retry == self._max_retries
            ):
                return result
            retry += 1
