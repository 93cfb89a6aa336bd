"""AgentGym's protocol: its clients play here, one environment on a port.

The form is that of the AgentGym server of the same world, and of its TextCraft server where it has
none; the words are our environment's own. Item i is the i-th of the training, validation and test
tasks in that order. Errors are answers of status 200, as there: clients know nothing else.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from longhaul_core.errors import ConfigError, LonghaulError
from longhaul_core.types import Observation, Task
from longhaul_envs.agentgym.dialects import DIALECTS, Dialect
from longhaul_envs.server.dialects.loopback import LoopbackOnly
from longhaul_envs.server.dialects.seat import Seat, every_task
from longhaul_envs.server.errors import Refused
from longhaul_envs.server.protocol import MAX_BODY_BYTES
from longhaul_envs.server.table import Served, SessionTable
from longhaul_envs.wordle.words import word_list

__all__ = ["FORMS", "create_agentgym_app"]

FORMS: Mapping[str, str] = {
    "longhaul/ALFWorld-v0": "alfworld",
    "longhaul/BabyAI-v0": "babyai",
    "longhaul/Maze-v0": "maze",
    "longhaul/SQL-v0": "sqlgym",
    "longhaul/ScienceWorld-v0": "sciworld",
    "longhaul/Search-v0": "searchqa",
    "longhaul/WebArena-v0": "webarena",
    "longhaul/WebShop-v0": "webshop",
    "longhaul/Wordle-v0": "wordle",
}
"""The authors' name of the form that an environment is played in; any other's is `textcraft`."""
_SCORE_DIGITS = 9
"""After the point, so that rewards that add up to all of a score make all of it."""
_MAX_SEATS = 100_000
"""Players that are remembered; AgentGym's clients seldom leave. The oldest is forgotten first."""


def create_agentgym_app(table: SessionTable, served: Served) -> Starlette:
    """AgentGym's application for one environment.

    Raises:
        ConfigError: If it shows pictures, of which a client would see nothing.
    """
    if served.description.shows_pictures:
        raise ConfigError(
            f"{served.description.id} shows pictures, and AgentGym's protocol carries text alone; "
            "serve it in its own protocol, openenv or ors, or with options by which it shows text"
        )
    form = DIALECTS[FORMS.get(served.description.id, "textcraft")]
    handlers = _Handlers(table, served, form)
    routes = [
        Route("/", handlers.greet),
        Route("/create", _answering(handlers.create), methods=["POST"]),
        Route("/reset", _answering(handlers.reset), methods=["POST"]),
        Route("/step", _answering(handlers.step), methods=["POST"]),
        Route("/observation", _answering(handlers.observation)),
        Route("/close", _answering(handlers.close), methods=["POST"]),
    ]
    if form.words_path:
        routes.append(Route(form.words_path, _answering(handlers.words)))
    return Starlette(routes=routes, middleware=[Middleware(LoopbackOnly)])


class _Wrong(Refused):
    """The request does not fit."""


class _Handlers:
    def __init__(self, table: SessionTable, served: Served, form: Dialect) -> None:
        self._table = table
        self._served = served
        self._form = form
        self._tasks: list[Task] = []
        self._seats: dict[int, Seat] = {}
        self._numbers = itertools.count()

    async def greet(self, request: Request) -> Response:
        return PlainTextResponse(f"This is {self._served.description.id}.")

    async def create(self, request: Request) -> object:
        number = next(self._numbers)
        seat = Seat(self._table, self._served, dialect="agentgym")
        field = self._form.created_id
        created: object = number if field is None else {field: number}
        if self._form.begins_at_create:
            tasks = await self._listed()
            created = await self._begun(number, seat, tasks[number % len(tasks)])
        self._seats[number] = seat
        if len(self._seats) > _MAX_SEATS:
            self._seats.pop(min(self._seats)).leave()
        return created

    async def reset(self, request: Request) -> object:
        body = await _body(request)
        number, seat = self._seat(body)
        item = body.get(self._form.item_field, 0)
        tasks = await self._listed()
        if not isinstance(item, int) or not 0 <= item < len(tasks):
            raise _Wrong(f"{self._form.item_field} must be from 0 to {len(tasks) - 1}")
        return await self._begun(number, seat, tasks[item])

    async def _begun(self, number: int, seat: Seat, task: Task) -> object:
        """The answer to a reset of `seat` to `task`."""
        seen = self._shown(await seat.reset(task))
        if self._form.created_id is None:
            return [seen["text"], None]
        *others, text_field = self._form.first_fields
        first = dict.fromkeys(others, task.goal) | {text_field: seen.pop("text")}
        return first | seen | {"id": number, "reward": 0.0, "score": 0.0, "done": False}

    async def step(self, request: Request) -> object:
        body = await _body(request)
        _, seat = self._seat(body)
        action = body.get("action")
        if not isinstance(action, str):
            raise _Wrong("action must be text")
        result = await seat.step(self._form.read(action))
        seen = self._shown(result.observation)
        scale = self._form.success_score if self._form.success_score > 1 else 1.0
        form = self._form
        cut = {form.truncated_field: result.truncated} if form.truncated_field else {}
        return (
            {
                "reward": result.reward * scale,
                self._form.score_field: round(seat.episode_return * scale, _SCORE_DIGITS),
                self._form.done_field: result.terminated or result.truncated,
                self._form.text_field: seen.pop("text"),
                "info": None,
            }
            | seen
            | cut
        )

    async def observation(self, request: Request) -> object:
        return self._shown(self._asking_seat(request).observation())["text"]

    async def words(self, request: Request) -> object:
        """The guesses that Wordle accepts."""
        self._asking_seat(request)
        return word_list(str(self._served.options.get("words", ""))).guesses

    async def close(self, request: Request) -> object:
        number, seat = self._seat(await _body(request))
        seat.leave()
        del self._seats[number]
        return True

    async def _listed(self) -> list[Task]:
        # In a thread: the first time a source may take long to list them.
        self._tasks = self._tasks or await asyncio.to_thread(every_task, self._served)
        return self._tasks

    def _seat(self, body: Mapping[str, Any]) -> tuple[int, Seat]:
        number = body.get(self._form.id_field)
        if not isinstance(number, int) or number not in self._seats:
            raise _Wrong(f"no environment has {self._form.id_field} = {number!r}; create one first")
        return number, self._seats[number]

    def _asking_seat(self, request: Request) -> Seat:
        """The seat that a GET names."""
        number = request.query_params.get(self._form.id_field, "")
        return self._seat({self._form.id_field: int(number) if number.isdecimal() else number})[1]

    def _shown(self, observation: Observation) -> dict[str, object]:
        actions = list(observation.admissible_actions or ())
        text = observation.text
        if self._form.actions_marker:
            text += self._form.actions_marker + json.dumps(actions)
        shown: dict[str, object] = {"text": text}
        if self._form.actions_field:
            shown[self._form.actions_field] = actions
        return shown


async def _body(request: Request) -> dict[str, Any]:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise _Wrong(f"a body may have {MAX_BODY_BYTES} bytes at most")
    try:
        body = json.loads(received or b"{}")
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _Wrong("the body must be an object")
    return cast("dict[str, Any]", body)


def _answering(
    handler: Callable[[Request], Awaitable[object]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        try:
            return JSONResponse(await handler(request))
        except LonghaulError as error:  # of the table, or of a source that lacks its data
            return JSONResponse({"error": str(error)})

    return answered
