"""Calls of a hosted model: its requests, their repetitions, and what they cost."""

import asyncio
import email.utils
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable

import aiohttp
import msgspec

from longhaul_core.addresses import proxy_variable, through_proxy
from longhaul_core.redaction import redacted
from longhaul_trainer.gateway.exchange import ApiError, ChatReply, ChatRequest, Delta, Usage
from longhaul_trainer.gateway.hosted.anthropic_client import AnthropicVendor
from longhaul_trainer.gateway.hosted.endpoint import Endpoint
from longhaul_trainer.gateway.hosted.gathering import GatheredReply, Vendor
from longhaul_trainer.gateway.hosted.openai_client import OLDER_NAME, OpenAIVendor
from longhaul_trainer.gateway.upstream import UpstreamAnswer

__all__ = ["HostedModel", "pause_before", "retry_after"]

LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries, whatever the endpoint asks for."""
CONNECT_SECONDS = 30.0
SHOWN_CHARACTERS = 400
"""Of an endpoint's answer, in messages."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
NEWER_NAME = "max_completion_tokens"
"""What OpenAI's newer models demand in the place of `OLDER_NAME`."""


class _Retry(Exception):
    """A try that failed in a way that may pass."""

    def __init__(self, message: str, *, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class HostedModel:
    """A model behind an endpoint. An `Upstream`; belongs to the event loop that first calls it."""

    def __init__(self, endpoint: Endpoint) -> None:
        """A model that nothing was asked of yet; no connection is open."""
        self.endpoint = endpoint
        self._vendor: Vendor = AnthropicVendor() if endpoint.api == "anthropic" else OpenAIVendor()
        base = endpoint.url.rstrip("/")
        if endpoint.api == "anthropic":
            base = base.removesuffix("/v1")  # its clients' base URL has none, and some write it
        self._address = base + self._vendor.path
        self._proxy = proxy_variable(self._address)
        self._places = asyncio.Semaphore(endpoint.max_concurrent)
        self._session: aiohttp.ClientSession | None = None

    async def answer(
        self, request: ChatRequest, *, on_delta: Callable[[Delta], None] | None
    ) -> UpstreamAnswer:
        """See `Upstream.answer`.

        Raises:
            ApiError: `upstream`: the endpoint cannot be reached, refused the key, failed, or
                broke its answer off; `invalid_request`: it refused the request; `unsupported`: its
                API has no word for what is asked.
        """
        if request.raw_prompt is not None:
            raise ApiError(
                "unsupported",
                "a hosted model takes messages, and no prompt of text or tokens",
                parameter="prompt",
            )
        began = time.perf_counter()
        retries = 0
        async with self._places:
            while True:
                sent = time.perf_counter()
                try:
                    reply = await self._once(request, on_delta)
                except _Retry as failure:
                    if retries == self.endpoint.max_retries:
                        tries = f"{retries + 1} times" if retries else "once"
                        raise self._failed(f"{failure}; tried {tries}") from failure
                    await asyncio.sleep(pause_before(retries, asked=failure.pause))
                    retries += 1
                else:
                    break
        return UpstreamAnswer(
            reply=ChatReply(
                id=secrets.token_hex(12),
                created=int(time.time()),
                model=request.model,
                choices=reply.choices(),
                usage=reply.usage or Usage(prompt_tokens=0, reply_tokens=0),
            ),
            cost_usd=self.endpoint.cost_usd(reply.usage),
            queue_seconds=sent - began,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _once(
        self, request: ChatRequest, on_delta: Callable[[Delta], None] | None
    ) -> GatheredReply:
        body = self._vendor.body(
            request,
            model=self.endpoint.model,
            stream=on_delta is not None,
            max_reply_tokens=self.endpoint.max_reply_tokens,
        )
        reply = GatheredReply()
        num_handed_on = 0
        try:
            async with self._connected().post(
                self._address,
                data=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    await self._refused(response, body)
                if on_delta is None:
                    self._read(self._vendor.whole, await response.read(), reply)
                else:
                    async for data in _events(response.content):
                        for delta in self._read(self._vendor.event, data, reply):
                            num_handed_on += 1
                            on_delta(delta)
        except aiohttp.ConnectionTimeoutError as error:
            raise _Retry(f"the connection failed: none within {CONNECT_SECONDS:g} s") from error
        except TimeoutError as error:
            limit = self.endpoint.deadline_seconds
            raise self._failed(f"no answer within {limit:g} s (deadline_seconds)") from error
        except (aiohttp.ClientError, OSError) as error:
            failure = f"the connection failed: {type(error).__name__}: {error}"
            if num_handed_on:
                raise self._failed(f"{failure}, in mid-reply") from error
            raise _Retry(failure) from error
        if not reply.is_complete:
            if num_handed_on:
                raise self._failed("the answer broke off in mid-reply")
            raise _Retry("the answer broke off before its first piece")
        if not reply.choices():
            raise self._failed("the answer has no choice")
        return reply

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._vendor.headers(self.endpoint.key),
                timeout=aiohttp.ClientTimeout(
                    total=self.endpoint.deadline_seconds, sock_connect=CONNECT_SECONDS
                ),
                connector=aiohttp.TCPConnector(limit=0),
                trust_env=self._proxy is not None,
            )
        return self._session

    def _read(
        self,
        read: Callable[[bytes, GatheredReply], list[Delta]],
        data: bytes,
        reply: GatheredReply,
    ) -> list[Delta]:
        try:
            return read(data, reply)
        except (msgspec.DecodeError, RecursionError) as error:
            shown = self._shown(data)
            raise self._failed(f"its answer is not {self.endpoint.api}'s: {shown}") from error
        except ApiError as error:
            raise self._failed(f"an error in its answer: {self._shown(error.message)}") from error

    async def _refused(self, response: aiohttp.ClientResponse, body: dict[str, object]) -> None:
        """Raise what an answer of another status than 200 means.

        Raises:
            ApiError: It is final.
            _Retry: It may pass.
        """
        said = await response.content.read(MAX_ANSWER_BYTES)
        message = f"status {response.status}: {self._shown(said)}"
        if response.status in (408, 409, 425, 429) or response.status >= 500:
            raise _Retry(message, pause=retry_after(response.headers.get("Retry-After")))
        vendor = self._vendor
        if (
            isinstance(vendor, OpenAIVendor)
            and response.status == 400
            and NEWER_NAME.encode() in said
            and OLDER_NAME in body  # whatever the answer to another request has changed meanwhile
        ):
            vendor.longest = NEWER_NAME
            raise _Retry(message, pause=0.0)
        if response.status in (400, 404, 413, 422):
            raise self._failed(message, kind_is_ours=False)
        advice = "; check the key" if response.status in (401, 403) else ""
        raise self._failed(f"{message}{advice}")

    def _failed(self, message: str, *, kind_is_ours: bool = True) -> ApiError:
        where = f"{self.endpoint.model!r} at {self._address}"
        kind = "upstream" if kind_is_ours else "invalid_request"
        if kind_is_ours and self._proxy is not None:
            message += "; " + through_proxy(self._proxy, self._address)
        return ApiError(kind, self._without_key(f"hosted model {where}: {message}"))

    def _shown(self, said: bytes | str) -> str:
        text = said if isinstance(said, str) else said.decode(errors="replace")
        text = " ".join(self._without_key(text).split())
        return text[:SHOWN_CHARACTERS] + ("…" if len(text) > SHOWN_CHARACTERS else "")

    def _without_key(self, text: str) -> str:
        key = self.endpoint.key
        return redacted(text if key is None else text.replace(key, "***"))


async def _events(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Data of each server-sent event; vendors write it on one line."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"an event of more than {MAX_ANSWER_BYTES:,} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
    if rest.startswith(b"data:"):
        yield rest.removeprefix(b"data:").strip()


def retry_after(value: str | None) -> float | None:
    """Seconds that a header `Retry-After` asks to wait, as a number or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def pause_before(retries: int, *, asked: float | None) -> float:
    """Seconds before the next try; drawn, so that many that failed at once do not come at once."""
    if asked is not None:
        return min(asked, LONGEST_PAUSE_SECONDS)
    return min(0.5 * 2**retries, LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)
