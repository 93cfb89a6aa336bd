"""Which runner plays which episode, in the process that plays the episodes.

A runner holds a lease while it is heard of. A lease ends once: with what the program left, because
the runner is lost or handed it back, or because nobody waits for the episode any more. Whatever a
runner says of it afterwards changes nothing.

No lock: all of it happens on the event loop of the gateway. No SQL: `on_change` hands on what is to
be recorded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from longhaul_core.clock import now
from longhaul_core.store.records import LeaseOutcome
from longhaul_trainer.play.runners.wire import Beaten, Result

__all__ = ["Lease", "LeaseHandedBack", "LeaseLate", "LeaseOver", "Leases", "Offer", "OnChange"]

logger = logging.getLogger(__name__)

_MAX_OVER = 10_000
"""Of how many leases that are over the cause is kept."""
_UNKNOWN = "this gateway does not know it"
_NOBODY_SECONDS = 60.0
"""After which a run says that episodes wait for a runner, and says it again."""


class LeaseOver(Exception):
    """A lease is over, and nothing that its runner says counts any more; the message is why."""

    outcome: LeaseOutcome = "lost"


class LeaseHandedBack(LeaseOver):
    """The runner was stopped."""

    outcome = "handed_back"


class LeaseLate(LeaseOver):
    """The program is beyond its deadline, and its runner did not end it."""

    outcome = "late"


@dataclass(eq=False, slots=True, kw_only=True)
class Lease:
    """An episode that a runner plays."""

    id: str
    runner: str
    address: str
    """Of the gateway, as programs on the runner's machine reach it."""
    leased_at: float = field(default_factory=time.time)
    heard_at: float = field(default_factory=now)
    """By the event loop."""
    result: asyncio.Future[Result] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    is_enough: bool = False
    """Whether its program is to be ended: the episode is over."""


@dataclass(eq=False, slots=True, kw_only=True)
class Offer:
    """An episode that a runner may play."""

    task: str
    environ: Callable[[str], dict[str, str]]
    """The program's variables, by the address of the gateway."""
    deadline_seconds: float
    name: str
    """Of the episode, in the store."""
    task_id: str
    taken: asyncio.Future[Lease] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    lease: Lease | None = None


@dataclass(eq=False, slots=True)
class _Waiting:
    runner: str
    address: str
    granted: asyncio.Future[Offer | None]


OnChange = Callable[[Offer, Lease, LeaseOutcome | None], None]
"""Called when a lease begins, and when it ends, with its outcome."""


class Leases:
    """The episodes that wait for runners, the runners that wait for episodes, and who has which."""

    def __init__(self, *, lost_seconds: float, on_change: OnChange | None = None) -> None:
        """There is none.

        Args:
            lost_seconds: Without a heartbeat for so long a runner counts as lost.
            on_change: See `OnChange`; None for a run that records nothing.
        """
        self.lost_seconds = lost_seconds
        self._on_change = on_change
        self._offers: deque[Offer] = deque()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._held: dict[str, Offer] = {}
        self._over: OrderedDict[str, str] = OrderedDict()
        """Why; empty for one whose result was taken."""
        self._mentioned_at = float("-inf")
        """When the log last had it that episodes wait, by the event loop."""

    @property
    def held(self) -> Sequence[tuple[Offer, Lease]]:
        """Who plays what."""
        return [(offer, offer.lease) for offer in self._held.values() if offer.lease is not None]

    @contextmanager
    def offered(self, offer: Offer) -> Generator[None]:
        """Let runners have an episode; with the block whatever lease of it there is has ended."""
        self._offers.append(offer)
        self._match()
        outcome: LeaseOutcome = "cancelled"
        cause = "nobody waits for the episode any more"
        try:
            yield
            outcome, cause = "returned", ""
        except LeaseOver as error:
            outcome, cause = error.outcome, str(error)
            raise
        finally:
            with suppress(ValueError):
                self._offers.remove(offer)
            if offer.lease is not None:
                self._end(offer, offer.lease, outcome, cause)

    async def take(
        self, lease_id: str, *, runner: str, address: str, wait_seconds: float
    ) -> Offer | None:
        """An episode for a runner; None if none came in time.

        A lease that the runner has already is given again. Cancelled, it leaves nothing behind.

        Raises:
            LeaseOver: The lease is over.
        """
        if (offer := self._held.get(lease_id)) is not None:
            return offer
        if lease_id in self._over:
            raise LeaseOver(self._over[lease_id] or "its result was taken")
        if (earlier := self._waiting.pop(lease_id, None)) is not None:
            _settle(earlier.granted)  # its connection is gone
        waiting = _Waiting(runner, address, asyncio.get_running_loop().create_future())
        self._waiting[lease_id] = waiting
        self._match()
        try:
            async with asyncio.timeout(wait_seconds):
                return await waiting.granted
        except TimeoutError:
            return self._held.get(lease_id)
        finally:
            if self._waiting.get(lease_id) is waiting:
                del self._waiting[lease_id]

    def beat(self, lease_ids: Sequence[str]) -> Beaten:
        """A runner says that it plays these."""
        over: dict[str, str] = {}
        enough: list[str] = []
        for lease_id in lease_ids:
            offer = self._held.get(lease_id)
            if offer is None or offer.lease is None:
                over[lease_id] = self._over.get(lease_id) or _UNKNOWN
                continue
            offer.lease.heard_at = now()
            if offer.lease.is_enough:
                enough.append(lease_id)
        return Beaten(over=over, enough=tuple(enough))

    def finish(self, lease_id: str, result: Result) -> None:
        """A runner says what a program left; said again, it changes nothing.

        Raises:
            LeaseOver: The lease ended before, without a result.
        """
        offer = self._held.get(lease_id)
        if offer is not None and offer.lease is not None:
            if not offer.lease.result.done():
                offer.lease.heard_at = now()
                offer.lease.result.set_result(result)
            return
        if (waiting := self._waiting.pop(lease_id, None)) is not None:
            _settle(waiting.granted)
        if lease_id not in self._over:
            self._remember(lease_id, _UNKNOWN)
        if cause := self._over[lease_id]:
            raise LeaseOver(cause)

    async def wait_taken(self, offer: Offer) -> Lease:
        """The lease of an episode, once a runner has it; who waits long is mentioned in the log."""
        while True:
            done, _ = await asyncio.wait({offer.taken}, timeout=_NOBODY_SECONDS)
            if done:
                return offer.taken.result()
            if not self._held and now() >= self._mentioned_at + _NOBODY_SECONDS:
                self._mentioned_at = now()
                logger.warning(
                    "%d episodes wait, and no runner plays any; start `trainer runner`, and look "
                    "at what it prints",
                    len(self._offers),
                )

    def _match(self) -> None:
        """Give the oldest episodes to those that have waited longest."""
        while self._offers and self._waiting:
            lease_id, waiting = self._waiting.popitem(last=False)
            if waiting.granted.done():
                continue
            offer = self._offers.popleft()
            lease = Lease(id=lease_id, runner=waiting.runner, address=waiting.address)
            offer.lease = lease
            self._held[lease_id] = offer
            waiting.granted.set_result(offer)
            offer.taken.set_result(lease)
            self._note(offer, lease, None)

    def _end(self, offer: Offer, lease: Lease, outcome: LeaseOutcome, cause: str) -> None:
        del self._held[lease.id]
        self._remember(lease.id, cause)
        if not lease.result.done():
            lease.result.cancel()
        self._note(offer, lease, outcome)

    def _remember(self, lease_id: str, cause: str) -> None:
        self._over[lease_id] = cause
        if len(self._over) > _MAX_OVER:
            self._over.popitem(last=False)

    def _note(self, offer: Offer, lease: Lease, outcome: LeaseOutcome | None) -> None:
        if self._on_change is not None:
            self._on_change(offer, lease, outcome)


def _settle(granted: asyncio.Future[Offer | None]) -> None:
    if not granted.done():
        granted.set_result(None)
