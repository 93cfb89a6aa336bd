"""Many episodes at once, each at its own pace.

A fixed number of slots play one episode after the other; nobody waits for the
slowest. Work per episode does not depend on how many others are in flight.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from longhaul_core.environment import EnvironmentFactory
from longhaul_core.errors import ConfigError
from longhaul_core.rollout.agent import Agent
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.loop import EpisodeOutcome, run_episode
from longhaul_core.rollout.seeds import retry_seed
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.types import FailedEpisode

__all__ = ["EpisodeResult", "EpisodeRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """One try at one episode."""

    spec: EpisodeSpec
    """As it was played: `retry` and `seed` are those of this try."""
    outcome: EpisodeOutcome
    final: bool
    """False if the episode failed and is played again."""

    @property
    def failed(self) -> bool:
        """Whether the try left a failure instead of a trajectory."""
        return isinstance(self.outcome, FailedEpisode)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Plays episodes under one set of limits."""

    agent: Agent
    make_environment: EnvironmentFactory
    limits: EpisodeLimits
    concurrency: int
    """Most episodes in flight, at least 1."""
    max_retries: int = 0
    """How often a failed episode is played again before it is left out of its group."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {self.concurrency}")
        if self.max_retries < 0:
            raise ConfigError(f"max_retries must not be negative, got {self.max_retries}")

    async def run(
        self,
        specs: Iterable[EpisodeSpec],
        *,
        on_result: Callable[[EpisodeResult], None] | None = None,
    ) -> AsyncGenerator[EpisodeResult]:
        """Yield the result of every try, in the order in which they end.

        Failed tries are yielded too, each with its own record. Leaving the generator
        early cancels what is in flight; wrap it in `contextlib.aclosing` to do so at once.

        Args:
            specs: Read lazily, one as a slot becomes free; may be endless.
            on_result: Called at the moment a try ends, even if the reader of the
                generator is busy, e.g. to draw progress. What it raises stops the run.
        """
        pending = iter(specs)
        # Slots put their results here, and at their end themselves.
        ended: asyncio.Queue[EpisodeResult | asyncio.Task[None]] = asyncio.Queue()

        def deliver(result: EpisodeResult) -> None:
            if on_result is not None:
                on_result(result)
            ended.put_nowait(result)

        slots = [
            asyncio.create_task(self._play_in_turn(pending, deliver))
            for _ in range(self.concurrency)
        ]
        for slot in slots:
            slot.add_done_callback(ended.put_nowait)
        num_open = len(slots)
        try:
            while num_open:
                item = await ended.get()
                if isinstance(item, EpisodeResult):
                    yield item
                else:
                    num_open -= 1
                    item.result()  # raises what escaped the slot
        finally:
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)

    async def _play_in_turn(
        self, pending: Iterator[EpisodeSpec], deliver: Callable[[EpisodeResult], None]
    ) -> None:
        """One slot: play episodes until none is left."""
        for spec in pending:
            for retry in range(self.max_retries + 1):
                attempt = replace(spec, retry=retry, seed=retry_seed(spec.seed, retry=retry))
                result = await self._play(attempt)
                deliver(result)
                if result.final:
                    break

    async def _play(self, spec: EpisodeSpec) -> EpisodeResult:
        outcome = await run_episode(
            spec, agent=self.agent, make_environment=self.make_environment, limits=self.limits
        )
        broken = isinstance(outcome, FailedEpisode)
        return EpisodeResult(
            spec=spec, outcome=outcome, final=not broken or spec.retry >= self.max_retries
        )
