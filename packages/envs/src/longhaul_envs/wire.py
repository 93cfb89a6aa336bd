"""The connection of one episode to a server of another system, by aiohttp.

Every request is made once: these servers number no steps, so a request that is made again may act
twice. What goes wrong fails the episode, with the address and the cause in its message.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import aiohttp

from longhaul_core.errors import EnvironmentFailure, EnvironmentTimeout, message_of
from longhaul_core.text import shortened, well_formed

__all__ = ["MAX_ANSWER_BYTES", "Connection", "Places", "shown"]

MAX_ANSWER_BYTES = 16 * 2**20
"""Of one answer."""

_SHOWN_CHARACTERS = 300


class Places:
    """Lets at most so many episodes of an event loop play at once; the others wait for a place."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._free: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def take(self) -> None:
        """Wait for a place."""
        await self._of_this_loop().acquire()

    def give_back(self) -> None:
        """Let the next episode have the place."""
        self._of_this_loop().release()

    def _of_this_loop(self) -> asyncio.Semaphore:
        return self._free.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._number))


class Connection:
    """Requests to one server, each on a socket of its own. Belongs to one event loop.

    `close` it there.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float, headers: Mapping[str, str] | None = None
    ) -> None:
        """Describe it; nothing is sent yet.

        Args:
            url: Of the server, without a slash at its end.
            timeout_seconds: For one request, from connecting to the last byte of its answer.
            headers: Of every request.
        """
        self.url = url
        self.timeout_seconds = timeout_seconds
        # A socket that is kept may be closed by the server, idle for 5 s, at the moment at which a
        # step is written to it; whether the step was then made is known to nobody.
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            headers=headers,
        )

    async def close(self) -> None:
        """Close its sockets. Safe to call twice."""
        await self.session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, object]:
        """The status and the JSON that a GET of `path` is answered with; see `post`."""
        return await self._ask("GET", path, params=params, body=None)

    async def post(
        self, path: str, body: Mapping[str, object], *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, object]:
        """The status and the JSON that a POST of `body` is answered with.

        A body that is no JSON is returned as text where the status is one of an error.

        Raises:
            EnvironmentTimeout: No whole answer came in time.
            EnvironmentFailure: The server cannot be reached, hung up, or answered no JSON.
        """
        return await self._ask("POST", path, params=None, body=body, headers=headers)

    @asynccontextmanager
    async def asking(self, what: str) -> AsyncGenerator[None]:
        """Turn what aiohttp raises into a failure of the episode that names the address."""
        try:
            yield
        except TimeoutError as error:
            raise EnvironmentTimeout(
                f"{what} {self.url} did not answer within {self.timeout_seconds:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EnvironmentFailure(
                f"{what} {self.url} failed: {type(error).__name__}: {message_of(error)}"
            ) from error

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, object]:
        what = f"{method} {path} of"
        data = None if body is None else well_formed(json.dumps(body, ensure_ascii=False))
        async with self.asking(what):
            async with self.session.request(
                method,
                self.url + path,
                params=params,
                data=data,
                headers={"Content-Type": "application/json", **(headers or {})},
            ) as response:
                content = await _read(response, what=f"{what} {self.url}")
                status = response.status
        try:
            return status, json.loads(content)
        except ValueError as error:
            text = content.decode(errors="replace")
            if status >= 400:
                return status, text
            raise EnvironmentFailure(
                f"{what} {self.url} answered no JSON: {shown(text)}"
            ) from error


async def _read(response: aiohttp.ClientResponse, *, what: str) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise EnvironmentFailure(f"{what} answered more than {MAX_ANSWER_BYTES:,} bytes")
    return bytes(content)


def shown(value: object) -> str:
    """What a server answered, short enough for a message."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, _SHOWN_CHARACTERS)
