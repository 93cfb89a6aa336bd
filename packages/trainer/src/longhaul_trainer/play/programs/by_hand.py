"""Episodes of a gateway that stands alone: whoever has the address plays them.

An episode is open until its program reports the end (`done`), makes no further call within its
limits, or the gateway stops. It is recorded as an episode of a run's own program is: what it posted
is its reward, and without one it has failed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from longhaul_core.rollout import EpisodeLimits, EpisodeSpec, Responder
from longhaul_core.store.records import EpisodeRecord
from longhaul_core.types import Split, Task
from longhaul_trainer.gateway.app import holds_key
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.upstream import Upstream
from longhaul_trainer.play.programs.play import play_program
from longhaul_trainer.play.programs.program import Endpoint, Leavings

__all__ = ["GatewayByHand"]

ENVIRONMENT = "by-hand"
"""What stands for the environment of such tasks."""


class _Person:
    """Plays one episode from outside. A `Program`."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.environ: asyncio.Future[Mapping[str, str]] = asyncio.Future()
        self._stop = stop

    def check(self) -> None:
        """There is nothing to be started."""

    @asynccontextmanager
    async def run(
        self, task: Task, *, endpoint: Endpoint, enough: asyncio.Event | None = None
    ) -> AsyncGenerator[Leavings]:
        """Give the address away, and wait until the episode is over or the gateway stops."""
        self.environ.set_result(endpoint.environ)
        ends = [event.wait() for event in (enough, self._stop) if event is not None]
        waiting = [asyncio.create_task(end) for end in ends]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        yield Leavings()

    async def close(self) -> None:
        """There is nothing to be ended."""


class GatewayByHand:
    """A gateway with an open episode at any time, and others on demand."""

    def __init__(  # noqa: PLR0913  what its episodes are played with
        self,
        model: Responder | Upstream,
        *,
        names: Sequence[str],
        run_id: str,
        store: Callable[[EpisodeRecord], Awaitable[None]],
        rules: CallRules,
        limits: EpisodeLimits,
        host: str,
        port: int,
        on_open: Callable[[int, Mapping[str, str]], None],
        on_end: Callable[[int, EpisodeRecord], None],
    ) -> None:
        """A gateway that is not started.

        Args:
            model: Answers, as `auto` and under its names.
            names: Of the model, at least one.
            run_id: Of a run that has begun.
            store: Returns when the store has an episode of the run.
            rules: What calls may ask for.
            limits: Bounds of each episode.
            host: Where to listen.
            port: 0 is any free one.
            on_open: Called with the number and the environment variables of the episode that
                stands open, not of those that `POST /episodes` opens.
            on_end: Called with what was stored of an episode.
        """
        self._models = dict.fromkeys(names, model)
        self._run_id = run_id
        self._store = store
        self._rules = rules
        self._limits = limits
        self._on_open = on_open
        self._on_end = on_end
        self._num_opened = 0
        self._stop = asyncio.Event()
        self._playing: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        """What an episode was ended by that is no failure of the episode."""
        self.key = f"lh-{secrets.token_urlsafe(32)}"
        """What `POST /episodes` carries."""
        opening = Route("/episodes", self._answer_opening, methods=["POST"])
        self.gateway = Gateway(host=host, port=port, routes=[opening])

    async def serve(self) -> None:
        """Serve until `stop`; every episode with a call is then in the store.

        Raises:
            MachineError: The address cannot be listened on.
            StoreError: The store refused.
        """
        await self.gateway.start()
        try:
            while not self._stop.is_set():
                number, environ, playing = await self._open()
                self._on_open(number, environ)
                await playing
            while self._playing:
                await asyncio.gather(*self._playing)
            if self._failure is not None:  # of an episode that nobody here waited for
                raise self._failure
        finally:
            for task in self._playing:
                task.cancel()
            await self.gateway.stop()

    def stop(self) -> None:
        """End every episode, and then the gateway."""
        self._stop.set()

    async def _open(self) -> tuple[int, Mapping[str, str], asyncio.Task[None]]:
        number, self._num_opened = self._num_opened, self._num_opened + 1
        person = _Person(self._stop)
        playing = asyncio.create_task(self._play(number, person))
        self._playing.add(playing)
        playing.add_done_callback(self._ended)
        await asyncio.wait([playing, person.environ], return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
        return number, await person.environ, playing

    def _ended(self, playing: asyncio.Task[None]) -> None:
        self._playing.discard(playing)
        if not playing.cancelled() and (error := playing.exception()) is not None:
            self._failure = self._failure or error
            self.stop()

    async def _play(self, number: int, person: _Person) -> None:
        task = Task(
            environment=ENVIRONMENT,
            version="1",
            data_hash="",
            task_id=f"{number:05}",
            seed=number,
            split=Split.TEST,
            data="{}",
        )
        outcome = await play_program(
            EpisodeSpec(task=task, seed=number, group_index=number),
            program=person,
            gateway=self.gateway,
            models=self._models,
            rules=self._rules,
            limits=self._limits,
        )
        if not outcome.steps:
            return  # nobody called
        record = EpisodeRecord(
            run_id=self._run_id,
            attempt=0,
            phase="test",
            training_step=0,
            group_index=number,
            retry=0,
            outcome=outcome,
            group_size=1,
        )
        await self._store(record)
        self._on_end(number, record)

    async def _answer_opening(self, request: Request) -> Response:
        if not holds_key(request.headers, self.key):
            refusal = "POST /episodes needs the key that the gateway printed: Authorization: Bearer"
            return JSONResponse({"error": {"message": refusal}}, status_code=401)
        if self._stop.is_set():
            return JSONResponse({"error": {"message": "the gateway stops"}}, status_code=503)
        number, environ, _ = await self._open()
        return JSONResponse({"episode": number, "environ": dict(environ)}, status_code=201)
