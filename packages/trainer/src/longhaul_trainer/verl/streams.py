"""Tokens on their way from an engine's server to those who wait for each of them.

A reply is returned whole, by the request for it. Beside it a client that streams takes what all
of its streams have got since it last took something, in one request: while an engine writes 64
replies at once, that is one message for each of its passes and not 64 (decision 37).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from ray.exceptions import RayActorError

from longhaul_core.errors import EpisodeError, PolicyFailure, attributed_to

logger = logging.getLogger(__name__)

TAKE_SECONDS = 10.0
"""How long a client waits for tokens before it asks anew."""

TokenListener = Callable[[Sequence[int]], None]


class StreamName(NamedTuple):
    """One request whose tokens are wanted as they are written."""

    client: str
    """Whose outbox they go into."""
    number: int
    """Which of the client's requests."""


class Outbox:
    """At the server: tokens of one client's requests that it has not taken yet."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, list[int]]] = []
        self._news = asyncio.Event()
        self.num_users = 0
        """Requests in flight, and takers that wait."""

    def put(self, number: int, tokens: Sequence[int]) -> None:
        """Add tokens of a request, by its number."""
        self._pieces.append((number, list(tokens)))
        self._news.set()

    def wake(self) -> None:
        """Have whoever waits return."""
        self._news.set()

    async def take(self) -> list[tuple[int, list[int]]]:
        """What came since the last time; waits up to `TAKE_SECONDS` for something."""
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        taken, self._pieces = self._pieces, []
        return taken


class Outboxes:
    """At the server: an outbox for each client that has streams in flight."""

    def __init__(self) -> None:
        self._boxes: dict[str, Outbox] = {}

    @contextmanager
    def using(self, client: str) -> Generator[Outbox]:
        """The client's outbox, which is kept as long as somebody uses it."""
        box = self._boxes.setdefault(client, Outbox())
        box.num_users += 1
        try:
            yield box
        finally:
            box.num_users -= 1
            if box.num_users == 0:
                self._boxes.pop(client)

    def __len__(self) -> int:
        return len(self._boxes)


@dataclass(slots=True)
class _Stream:
    """At the client: one request, and how much of its reply was handed on."""

    listener: TokenListener
    num_handed: int = 0
    failure: EpisodeError | None = None

    def hand_on(self, tokens: Sequence[int]) -> None:
        """Give tokens to the listener; the requests beside this one do not suffer its errors."""
        if not tokens or self.failure is not None:
            return
        self.num_handed += len(tokens)
        try:
            with attributed_to(PolicyFailure, "on_tokens"):
                self.listener(tokens)
        except EpisodeError as failure:
            self.failure = failure


class TokenStreams:
    """At the client: the streams of one process, on one event loop."""

    def __init__(self) -> None:
        self._client = uuid4().hex
        self._streams: dict[int, _Stream] = {}
        self._num_begun = 0
        self._listening: dict[str, tuple[Any, asyncio.Task[None]]] = {}
        """By server: its handle, and who takes tokens from it."""

    @contextmanager
    def opened(
        self, listener: TokenListener
    ) -> Generator[tuple[StreamName, Callable[[Sequence[int]], None]]]:
        """A stream for the time of the block.

        Yields:
            Its name, for the server; and a function that takes all tokens of the reply once it is
            there, and gives the listener those that did not come on the way.
        """
        number, stream = self._num_begun, _Stream(listener)
        self._num_begun += 1
        self._streams[number] = stream

        def finish(tokens: Sequence[int]) -> None:
            del self._streams[number]  # what is still on its way is handed on here
            stream.hand_on(tokens[stream.num_handed :])
            if stream.failure is not None:
                raise stream.failure

        try:
            yield StreamName(self._client, number), finish
        finally:
            self._streams.pop(number, None)
            if not self._streams:
                for server, task in self._listening.values():
                    if not task.done():
                        server.end_taking.remote(self._client)

    def listen(self, server_id: str, server: Any) -> None:  # noqa: ANN401  an actor's handle
        """Take tokens of a server from now on, as long as there are streams."""
        _, listening = self._listening.get(server_id, (None, None))
        if listening is None or listening.done():
            task = asyncio.create_task(self._take_from(server))
            self._listening[server_id] = (server, task)

    async def _take_from(self, server: Any) -> None:  # noqa: ANN401
        while self._streams:
            try:
                taken = await server.take_tokens.remote(self._client)
            except RayActorError as error:  # its requests fail too, with the reason
                logger.warning("the tokens of an engine's replies stay away: %s", error)
                return
            for number, tokens in taken:
                if number in self._streams:
                    self._streams[number].hand_on(tokens)
