"""An episode on an ORS server: one session, over HTTP and server-sent events."""

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import cast

import aiohttp

from longhaul_core.environment import StepResult
from longhaul_core.errors import EnvironmentFailure, EnvironmentTimeout
from longhaul_core.text import well_formed
from longhaul_core.types import MediaType, Observation, Picture, Task
from longhaul_envs.ors.tasks import OrsOptions
from longhaul_envs.ors.tools import NoCall, Tools
from longhaul_envs.served import field_of, items_of
from longhaul_envs.task_api import refused_step, scored_step
from longhaul_envs.wire import MAX_ANSWER_BYTES, Connection, Places, shown

__all__ = ["OrsEnvironment"]

_MEDIA_TYPES: Mapping[object, MediaType] = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/webp": "image/webp",
}

logger = logging.getLogger(__name__)

_PING_SECONDS = 10.0
"""Between signs of life, as the system's own client sends them; servers reap silent sessions."""
_STARTING_SECONDS = 2.0
"""Before a server that is starting is asked again, unless it says how long."""
_MOST_RESUMES = 5
"""Times that the result of one call is asked for again after the connection broke."""


class _Broken(EnvironmentFailure):
    """A connection ended in the middle of an answer."""


class OrsEnvironment:
    """One episode, in the session that the server makes for it.

    Action:
        A call of a tool, or text for the terminal tool (`Tools.call`). What the server does not
        understand as a call changes nothing, and is not accepted.
    Reward:
        That of the call; None counts as 0.
    Episode end:
        Terminated when a call has finished the task. Solved if its reward is above
        `success_above`.
    Failures:
        A tool that raises, a session that is gone, and a connection that breaks before the server
        has named the call, since one that is made again may act twice. After that its result is
        asked for again by its name.
    """

    def __init__(self, options: OrsOptions, *, name: str, tools: Tools, places: Places) -> None:
        self._options = options
        self._name = name
        self._tools = tools
        self._places = places
        self._has_place = False
        self._connection: Connection | None = None
        self._session: dict[str, str] = {}
        """The header that names the session."""
        self._pinging: asyncio.Task[None] | None = None
        self._observation = Observation(text="")

    async def open(self) -> None:
        """Wait for one's turn."""
        await self._places.take()
        self._has_place = True

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        self._connection = Connection(
            self._options.base_url,
            timeout_seconds=self._options.timeout_seconds,
            headers=self._options.headers,
        )
        self._session = {"X-Session-ID": await self._new_session()}
        split, _, index = task.task_id.rpartition("/")
        await self._ask(
            "POST", "/create", {"env_name": self._name, "split": split, "index": int(index)}
        )
        self._pinging = asyncio.create_task(self._ping())
        prompt = await self._ask("GET", f"/{self._name}/prompt")
        own = Tools.of(await self._ask("GET", f"/{self._name}/task_tools"))
        further = [
            text for name, text in own.descriptions.items() if name not in self._tools.descriptions
        ]
        self._tools = own
        seen = _read(prompt)
        if further:
            listed = "\n".join(f"- {line}" for line in further)
            seen = Observation(
                text=f"{seen.text}\nFurther tools:\n{listed}", pictures=seen.pictures
            )
        self._observation = seen
        return seen

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        try:
            name, given = self._tools.call(action)
        except NoCall as error:
            return refused_step(str(error), before=self._observation)
        answer = await self._call(name, given)
        if answer.get("ok") is not True:
            reason = str(answer.get("error") or shown(dict(answer)))
            return refused_step(reason, before=self._observation)
        output = answer.get("output")
        if not isinstance(output, Mapping):
            raise self._failure(f"the call of {name}", f"no output: {shown(dict(answer))}")
        result = cast("Mapping[str, object]", output)
        self._observation = _read(result.get("blocks"))
        try:
            return scored_step(
                self._observation,
                ended=result.get("finished"),
                reward=result.get("reward"),
                success_above=self._options.success_above,
            )
        except EnvironmentFailure as error:
            raise self._failure(f"the call of {name}", f"{error}: {shown(dict(result))}") from error

    async def close(self) -> None:
        """Delete the session."""
        connection, self._connection = self._connection, None
        pinging, self._pinging = self._pinging, None
        try:
            if pinging is not None:
                pinging.cancel()
                await asyncio.wait({pinging})
            if connection is not None and self._session:
                for path in ("/delete", "/delete_session"):
                    await connection.post(path, {}, headers=self._session)
        finally:
            if connection is not None:
                await connection.close()
            if self._has_place:
                self._has_place = False
                self._places.give_back()

    async def _new_session(self) -> str:
        async with aclosing(self._events("/create_session", {})) as events:
            async for event, data in events:
                if event == "task_id":
                    return data.strip()
        raise self._failure("/create_session", "no session was named")

    async def _call(self, name: str, given: Mapping[str, object]) -> Mapping[str, object]:
        """The result of a call that is made once, asked for until it is there."""
        body: dict[str, object] = {"name": name, "input": dict(given)}
        num_resumes = 0
        while True:
            try:
                return await self._result(name, body)
            except _Broken as broken:
                if "task_id" not in body or num_resumes == _MOST_RESUMES:
                    raise
                num_resumes += 1
                logger.info("%s; its result is asked for again", broken)

    async def _result(self, name: str, body: dict[str, object]) -> Mapping[str, object]:
        """What a call returns; `body` gets the name that the server gives the call."""
        parts: list[str] = []
        async with aclosing(self._events(f"/{self._name}/call", body)) as events:
            async for event, data in events:
                if event == "task_id":
                    body["task_id"] = data.strip()
                elif event == "error":
                    raise self._failure(f"the call of {name}", f"it raised {shown(data)}")
                elif event in ("chunk", "end"):
                    parts.append(data)
                    if event == "end":
                        break
            else:
                raise self._broken(f"the call of {name}", "its answer ended before the result")
        text = "".join(parts)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self._failure(f"the call of {name}", f"no JSON: {shown(text)}") from error
        if not isinstance(value, dict):
            raise self._failure(f"the call of {name}", f"no result: {shown(text)}")
        return cast("Mapping[str, object]", value)

    async def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> object:
        """The answer, once the server has started; any other status is a failure."""
        assert self._connection is not None
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                while True:
                    async with self._connection.asking(f"{method} {path} of"):
                        async with self._connection.session.request(
                            method, self._options.base_url + path, json=body, headers=self._session
                        ) as response:
                            status, text = response.status, await response.text()
                            wait = _seconds_to_wait(response)
                    if wait is None:
                        break
                    await asyncio.sleep(wait)
        except TimeoutError as error:
            raise EnvironmentTimeout(
                f"{path} of {self._options.base_url}: the environment was still starting after "
                f"{self._options.timeout_seconds:g} s"
            ) from error
        if status != 200:
            raise self._failure(path, f"it answered status {status}: {shown(text)}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._failure(path, f"it answered no JSON: {shown(text)}") from error

    async def _events(
        self, path: str, body: Mapping[str, object]
    ) -> AsyncGenerator[tuple[str, str]]:
        """The events that a POST is answered with, as they come.

        Raises:
            _Broken: The connection broke on the way.
            EnvironmentFailure: The server answered an error.
            EnvironmentTimeout: Nothing came for `timeout_seconds`.
        """
        if self._connection is None:
            raise RuntimeError("the environment is not open")
        seconds = self._options.timeout_seconds
        data = well_formed(json.dumps(body, ensure_ascii=False))
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        try:
            while True:
                async with self._connection.session.post(
                    self._options.base_url + path,
                    data=data,
                    headers=headers | self._session,
                    timeout=aiohttp.ClientTimeout(total=seconds),
                ) as response:
                    if (wait := _seconds_to_wait(response)) is None:
                        if response.status != 200:
                            text = await response.text()
                            raise self._failure(
                                path, f"it answered status {response.status}: {shown(text)}"
                            )
                        async for event in _parsed(response):
                            yield event
                        return
                await asyncio.sleep(wait)
        except TimeoutError as error:
            raise EnvironmentTimeout(
                f"{path} of {self._options.base_url} did not answer within {seconds:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(path, f"{type(error).__name__}: {error}") from error

    async def _ping(self) -> None:
        """Tell the server that the session is played, until it says that it is not."""
        assert self._connection is not None
        while True:
            await asyncio.sleep(_PING_SECONDS)
            try:
                status, answer = await self._connection.post("/ping", {}, headers=self._session)
            except EnvironmentFailure as failure:
                logger.info("%s", failure)  # the next call meets what is wrong
                continue
            if status in (404, 410):
                logger.warning(
                    "session %s is gone: %s", self._session["X-Session-ID"], shown(answer)
                )
                return

    def _failure(self, what: str, why: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{what} on {self._options.base_url}: {why}")

    def _broken(self, what: str, why: str) -> _Broken:
        return _Broken(f"{what} on {self._options.base_url}: the connection broke: {why}")


def _seconds_to_wait(response: aiohttp.ClientResponse) -> float | None:
    """How long a server asks to wait until its environment has started; None if it has."""
    if response.status != 503 or response.headers.get("X-Backend-State") != "starting":
        return None
    after = response.headers.get("Retry-After", "")
    return min(float(after), 10.0) if after.isascii() and after.isdigit() else _STARTING_SECONDS


async def _parsed(response: aiohttp.ClientResponse) -> AsyncGenerator[tuple[str, str]]:
    """Server-sent events: name and data of each."""
    event, data, size = "", list[str](), 0
    buffered = b""
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise EnvironmentFailure(
                f"{response.url} answered more than {MAX_ANSWER_BYTES:,} bytes"
            )
        *lines, buffered = (buffered + chunk).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            field, _, value = text.partition(":")
            if not text:
                if event:
                    yield event, "\n".join(data)
                event, data = "", []
            elif field == "event":
                event = value.strip()
            elif field == "data":
                data.append(value.removeprefix(" "))


def _read(blocks: object) -> Observation:
    """What blocks of text and of images show."""
    texts: list[str] = []
    pictures: list[Picture] = []
    for block in items_of(blocks):
        if field_of(block, "type") == "image":
            pictures.append(_picture(block))
        else:
            texts.append(str(field_of(block, "text") or ""))
    return Observation(text=well_formed("\n".join(texts)), pictures=tuple(pictures))


def _picture(block: object) -> Picture:
    media_type = field_of(block, "mimeType")
    if media_type not in _MEDIA_TYPES:
        raise EnvironmentFailure(
            f"an image of type {media_type!r} is not read; PNG, JPEG, WebP are"
        )
    try:
        data = base64.b64decode(str(field_of(block, "data")), validate=True)
    except binascii.Error as error:
        raise EnvironmentFailure(f"an image is no base64: {error}") from error
    return Picture.of(data, media_type=_MEDIA_TYPES[media_type])
