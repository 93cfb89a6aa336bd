"""An episode on an OpenEnv server: one session, over one WebSocket."""

import json
from collections.abc import Mapping
from typing import cast

from aiohttp import ClientWebSocketResponse, WSMsgType

from longhaul_core.environment import StepResult
from longhaul_core.errors import EnvironmentFailure
from longhaul_core.text import well_formed
from longhaul_core.types import Observation, Task
from longhaul_envs.openenv.actions import ActionForm, NoAction
from longhaul_envs.openenv.tasks import OpenEnvOptions, reset_data
from longhaul_envs.task_api import refused_step, scored_step
from longhaul_envs.wire import MAX_ANSWER_BYTES, Connection, Places, shown

__all__ = ["OpenEnvEnvironment"]

_CLOSE_SECONDS = 10.0
"""For the server to end the session, so that the next episode has its place."""


class OpenEnvEnvironment:
    """One episode, in the environment that the server makes for this WebSocket.

    Action:
        Text for a field, or a JSON object (`ActionForm`). One that the server's schema refuses
        changes nothing, and is not accepted.
    Reward:
        The server's; None counts as 0.
    Episode end:
        Terminated when the server says `done`. Solved if the reward of that step is above
        `success_above`.
    Failures:
        An error of the environment, and a socket that closes: the server's environment ends with
        its socket, so nothing connects again.
    """

    def __init__(self, options: OpenEnvOptions, *, form: ActionForm, places: Places) -> None:
        self._options = options
        self._form = form
        self._places = places
        self._has_place = False
        self._connection: Connection | None = None
        self._socket: ClientWebSocketResponse | None = None
        self._observation = Observation(text="")

    async def open(self) -> None:
        """Wait until the server has a session to give."""
        await self._places.take()
        self._has_place = True

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        self._connection = Connection(
            self._options.base_url,
            timeout_seconds=self._options.timeout_seconds,
            headers=self._options.headers,
        )
        async with self._connection.asking("WebSocket /ws of"):
            self._socket = await self._connection.session.ws_connect(
                f"{self._options.base_url}/ws", max_msg_size=MAX_ANSWER_BYTES
            )
        answer = await self._ask("reset", reset_data(task))
        if "code" in answer:
            raise self._failure("reset", shown(answer))
        self._observation = self._read(answer)
        return self._observation

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        try:
            payload = self._form.payload(action)
        except NoAction as error:
            return refused_step(str(error), before=self._observation)
        answer = await self._ask("step", payload)
        if answer.get("code") == "VALIDATION_ERROR":
            complaints = f"The action was refused: {_complaints(answer)}"
            return refused_step(complaints, before=self._observation)
        if "code" in answer:
            raise self._failure("step", shown(answer))
        self._observation = self._read(answer)
        try:
            return scored_step(
                self._observation,
                ended=answer.get("done"),
                reward=answer.get("reward"),
                success_above=self._options.success_above,
            )
        except EnvironmentFailure as error:
            raise self._failure("step", f"{error}: {shown(answer)}") from error

    async def close(self) -> None:
        """End the session."""
        socket, self._socket = self._socket, None
        connection, self._connection = self._connection, None
        try:
            if socket is not None and not socket.closed and connection is not None:
                async with connection.asking("closing the WebSocket of"):
                    await socket.send_json({"type": "close"})
                    await socket.receive(timeout=_CLOSE_SECONDS)  # it closes when it has ended
                    await socket.close()
        finally:
            if connection is not None:
                await connection.close()
            if self._has_place:
                self._has_place = False
                self._places.give_back()

    async def _ask(self, kind: str, data: Mapping[str, object]) -> Mapping[str, object]:
        """The data of the server's answer; where it is an error, with its `code`."""
        if self._connection is None or self._socket is None:
            raise RuntimeError("the environment is not open")
        message = well_formed(json.dumps({"type": kind, "data": data}, ensure_ascii=False))
        async with self._connection.asking(f"{kind} over the WebSocket of"):
            if self._socket.closed:
                raise self._failure(kind, self._hung_up())
            await self._socket.send_str(message)
            answer = await self._socket.receive(timeout=self._options.timeout_seconds)
        if answer.type is not WSMsgType.TEXT:
            raise self._failure(kind, self._hung_up())
        try:
            body = json.loads(answer.data)
        except ValueError as error:
            raise self._failure(kind, f"no JSON: {shown(str(answer.data))}") from error
        inside = cast("Mapping[str, object]", body).get("data") if isinstance(body, dict) else None
        if not isinstance(inside, Mapping):
            raise self._failure(kind, f"no message of OpenEnv: {shown(str(answer.data))}")
        of_answer = cast("Mapping[str, object]", inside)
        if cast("Mapping[str, object]", body).get("type") == "error":
            return {"code": "UNKNOWN", **of_answer}
        return {name: value for name, value in of_answer.items() if name != "code"}

    def _hung_up(self) -> str:
        assert self._socket is not None
        return (
            f"the server closed the socket (code {self._socket.close_code}), and with it the "
            "environment"
        )

    def _failure(self, kind: str, what: str) -> EnvironmentFailure:
        hint = ""
        if "CAPACITY_REACHED" in what:
            hint = f"; play fewer at once than max_episodes = {self._options.max_episodes}"
        return EnvironmentFailure(f"{kind} on {self._options.base_url}: {what}{hint}")

    def _read(self, answer: Mapping[str, object]) -> Observation:
        seen = answer.get("observation")
        if not isinstance(seen, Mapping):
            raise self._failure("an answer", f"no observation: {shown(dict(answer))}")
        fields = {
            name: value
            for name, value in cast("Mapping[str, object]", seen).items()
            if name != "metadata"
        }
        chosen = self._options.observation_field
        if chosen and chosen not in fields:
            raise self._failure(
                "an answer", f"its observation has no {chosen!r}, only {', '.join(fields)}"
            )
        value: object = fields
        if chosen:
            value = fields[chosen]
        elif len(fields) == 1 and isinstance(only := next(iter(fields.values())), str):
            value = only
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return Observation(text=well_formed(text))


def _complaints(answer: Mapping[str, object]) -> str:
    """What the server's schema did not like, in a line."""
    errors = answer.get("errors")
    if not isinstance(errors, list):
        return shown(dict(answer))
    lines = [
        f"{'.'.join(str(part) for part in cast('list[object]', one.get('loc') or []))}: "
        f"{one.get('msg')}"
        for one in cast("list[Mapping[str, object]]", errors)
    ]
    return shown("; ".join(lines))
