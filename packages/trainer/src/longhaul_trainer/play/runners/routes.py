"""The routes at which runners lease episodes, beside those of programs on a run's gateway."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from longhaul_trainer.play.runners.leases import LeaseOver, Leases
from longhaul_trainer.play.runners.wire import (
    LEASES,
    PREFIX,
    Beat,
    Granted,
    Hello,
    HelloAnswer,
    LeaseRequest,
    Result,
)

__all__ = ["runner_routes"]

_MAX_BODY_BYTES = 1_000_000

T = TypeVar("T")

Gateways = Callable[[str], tuple[str, ...]]
"""All gateways of the run, by the address at which a runner reached this one."""


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def runner_routes(leases: Leases, *, token: str, gateways: Gateways) -> list[Route]:
    """Routes of a gateway.

    Args:
        leases: Of the gateway's process.
        token: What every request carries as `Authorization: Bearer`; empty for none.
        gateways: See `Gateways`.
    """
    routes = _Routes(leases, token.encode(), gateways)
    return [
        Route(path, _answering(handler), methods=["POST"])
        for path, handler in (
            (f"{PREFIX}/hello", routes.hello),
            (f"{PREFIX}/heartbeat", routes.heartbeat),
            (f"{LEASES}/{{lease}}", routes.lease),
            (f"{LEASES}/{{lease}}/result", routes.result),
        )
    ]


Handler = Callable[[Request], Awaitable[Response]]


def _answering(handler: Handler) -> Handler:
    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except _Refused as refused:
            return _json({"error": str(refused)}, status=refused.status)
        except LeaseOver as over:
            return _json({"error": f"the lease is over: {over}"}, status=410)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it

    return answered


class _Routes:
    def __init__(self, leases: Leases, token: bytes, gateways: Gateways) -> None:
        self._leases = leases
        self._token = token
        self._gateways = gateways

    async def hello(self, request: Request) -> Response:
        said = await self._read(request, Hello)
        return _json(HelloAnswer(gateways=self._gateways(said.address)))

    async def lease(self, request: Request) -> Response:
        asked = await self._read(request, LeaseRequest)
        taking = asyncio.ensure_future(
            self._leases.take(
                _lease_of(request),
                runner=asked.runner,
                address=asked.address,
                wait_seconds=asked.wait_seconds,
            )
        )
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({taking, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not taking.done():
                taking.cancel()
            await asyncio.wait({taking, gone})
        if taking.cancelled():
            raise ClientDisconnect
        offer = taking.result()
        if offer is None:
            return Response(status_code=204)
        return _json(
            Granted(
                task=offer.task,
                environ=offer.environ(asked.address),
                deadline_seconds=offer.deadline_seconds,
                lost_seconds=self._leases.lost_seconds,
            )
        )

    async def heartbeat(self, request: Request) -> Response:
        beat = await self._read(request, Beat)
        return _json(self._leases.beat(beat.leases))

    async def result(self, request: Request) -> Response:
        result = await self._read(request, Result)
        self._leases.finish(_lease_of(request), result)
        return _json({"status": "taken"})

    async def _read(self, request: Request, kind: type[T]) -> T:
        """The body, of a runner that has the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        fits = hmac.compare_digest(bearer.encode("latin-1"), self._token)
        if self._token and not fits:
            raise _Refused(401, "the token is not that of this run; see LONGHAUL_RUNNER_TOKEN")
        # A page of a browser may send other types to any address without asking first.
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type != "application/json":
            raise _Refused(415, f"content-type is {content_type!r}; it must be application/json")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_BODY_BYTES:
                raise _Refused(413, f"the body is longer than {_MAX_BODY_BYTES:,} bytes")
        try:
            return msgspec.json.decode(bytes(body), type=kind)
        except ValueError as error:  # msgspec's errors are of ValueError
            raise _Refused(422, str(error)) from error


def _lease_of(request: Request) -> str:
    lease: str = request.path_params["lease"]
    if not 16 <= len(lease) <= 64:
        raise _Refused(422, f"a lease has 16 to 64 characters, got {len(lease)}")
    return lease


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(content: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
