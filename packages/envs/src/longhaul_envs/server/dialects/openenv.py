"""OpenEnv's protocol, by OpenEnv's own server: its clients, and what trains with them, play here.

An action is `{"message": TEXT}`. `reset` takes a split and an index, as OpenEnv's task API has
them, or a seed, which chooses a training task.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server import http_server
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from longhaul_core import types
from longhaul_core.types import Split
from longhaul_envs.server.dialects.loopback import LoopbackOnly
from longhaul_envs.server.dialects.seat import Seat, task_at
from longhaul_envs.server.table import Served, SessionTable

__all__ = ["TextAction", "TextObservation", "create_openenv_app"]


class TextAction(Action):
    """What the agent writes."""

    message: str


class TextObservation(Observation):
    """What the agent sees. `done` is the end, terminated or truncated."""

    text: str
    admissible_actions: list[str] | None = None
    """None if the environment does not name them."""
    pictures: list[str] = Field(default_factory=list)
    """Image files in base64."""
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    action_accepted: bool = True


def create_openenv_app(table: SessionTable, served: Served) -> FastAPI:
    """OpenEnv's application for one environment. Within the table's event loop."""
    loop = asyncio.get_running_loop()

    def environment() -> _SeatedEnvironment:
        return _SeatedEnvironment(table, served, loop)

    untyped: Any = http_server
    app: FastAPI = untyped.create_fastapi_app(
        environment,
        TextAction,
        TextObservation,
        max_concurrent_envs=served.fleet.num_places,
        env_name=served.description.id.rpartition("/")[2],
    )
    app.add_middleware(LoopbackOnly)
    return app


class _SeatedEnvironment(Environment[TextAction, TextObservation, State]):
    """A connection's environment. OpenEnv makes and closes it in threads, and plays in its loop."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, table: SessionTable, served: Served, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._served = served
        self._loop = loop
        self._seat = Seat(table, served, dialect="openenv", holds=True)
        self._task = ""

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = Split.TRAIN,
        index: int | None = None,
        **others: Any,  # noqa: ANN401  OpenEnv's
    ) -> TextObservation:
        """Begin an episode of a task."""
        task = await asyncio.to_thread(self._task_of, split, index, seed)
        self._task = task.task_id
        return _shown(await self._seat.reset(task))

    def _task_of(self, split: str, index: int | None, seed: int | None) -> types.Task:
        """In a thread, since the first time a source may take long to list its tasks."""
        if index is None:
            index = (seed or 0) % len(self._served.tasks(Split(split)))
        return task_at(self._served, split, index)

    async def step_async(
        self,
        action: TextAction,
        timeout_s: float | None = None,
        **others: Any,  # noqa: ANN401  OpenEnv's
    ) -> TextObservation:
        """Make a step."""
        result = await self._seat.step(action.message)
        return _shown(result.observation).model_copy(
            update={
                "reward": result.reward,
                "done": result.terminated or result.truncated,
                "terminated": result.terminated,
                "truncated": result.truncated,
                "success": result.success,
                "action_accepted": result.action_accepted,
            }
        )

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        **others: Any,  # noqa: ANN401  OpenEnv's
    ) -> TextObservation:
        """As `reset_async`, from another thread: OpenEnv's stateless HTTP routes ask so."""
        return self._in_loop(self.reset_async(seed, episode_id, **others))

    def step(
        self,
        action: TextAction,
        timeout_s: float | None = None,
        **others: Any,  # noqa: ANN401  OpenEnv's
    ) -> TextObservation:
        """As `step_async`, from another thread."""
        return self._in_loop(self.step_async(action, timeout_s, **others))

    def _in_loop(self, playing: Any) -> TextObservation:  # noqa: ANN401
        return asyncio.run_coroutine_threadsafe(playing, self._loop).result()

    @property
    def state(self) -> State:
        """The task and the number of steps."""
        return State(episode_id=self._task, step_count=self._seat.num_steps)

    def get_metadata(self) -> EnvironmentMetadata:
        """What the environment is."""
        description = self._served.description
        return EnvironmentMetadata(
            name=description.id, description=description.summary, version=description.version
        )

    def close(self) -> None:
        """Leave the episode."""
        self._loop.call_soon_threadsafe(self._seat.leave)

    def list_splits(self) -> Sequence[str]:
        """OpenEnv's task API."""
        return [split.value for split in Split]

    def num_tasks(self, split: str) -> int:
        """OpenEnv's task API."""
        return len(self._served.tasks(Split(split)))

    def get_task(self, split: str, index: int) -> dict[str, object]:
        """OpenEnv's task API."""
        return _described(task_at(self._served, split, index), index)

    def list_tasks(self, split: str) -> list[dict[str, object]]:
        """OpenEnv's task API."""
        return self.get_task_range(split)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, object]]:
        """OpenEnv's task API."""
        listed = self._served.tasks(Split(split))
        return [_described(listed[index], index) for index in range(len(listed))[start:stop]]


def _shown(observation: types.Observation) -> TextObservation:
    admissible = observation.admissible_actions
    return TextObservation(
        text=observation.text,
        admissible_actions=None if admissible is None else list(admissible),
        pictures=[base64.b64encode(one.data or b"").decode() for one in observation.pictures],
    )


def _described(task: types.Task, index: int) -> dict[str, object]:
    return {"id": task.task_id, "index": index, "goal": task.goal, "version": task.version}
