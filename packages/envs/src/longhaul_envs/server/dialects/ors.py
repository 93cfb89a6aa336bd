"""ORS, the protocol of Open Reward, by its own server (package `openreward`).

A task is described by its id and seed; the prompt is the environment's introduction with the first
observation; the one tool, `act`, takes the action as text.
"""

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from openreward.environments import Environment, ImageBlock, Server, TextBlock, ToolOutput, tool
from openreward.environments.types import Split as OrsSplit
from pydantic import BaseModel, Field

from longhaul_core.types import Observation, Split
from longhaul_envs.server.dialects.loopback import LoopbackOnly
from longhaul_envs.server.dialects.seat import Seat, task_at
from longhaul_envs.server.table import Served, SessionTable

__all__ = ["Act", "create_ors_app"]


class Act(BaseModel):
    """The parameter of the tool."""

    action: str = Field(description="the action, as the prompt says")


def create_ors_app(table: SessionTable, served: Sequence[Served]) -> FastAPI:
    """Open Reward's application for environments, which clients call by their short names."""
    app: FastAPI = Server([_environment(table, one) for one in served]).app
    app.add_middleware(LoopbackOnly)
    return app


def _environment(table: SessionTable, served: Served) -> type[Environment]:
    """Open Reward makes an instance of a class for each session, and asks the class for tasks."""

    class Seated(Environment):
        def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:  # noqa: ANN401
            super().__init__(task_spec or {}, secrets or {})
            self._seat = Seat(table, served, dialect="ors", holds=True)
            self._first: Observation | None = None

        @classmethod
        def name(cls) -> str:
            return re.sub(r"-v\d+$", "", served.description.id.rpartition("/")[2]).lower()

        @classmethod
        def list_splits(cls) -> Sequence[OrsSplit]:
            return [OrsSplit(name=split.value, type=split.value) for split in Split]

        @classmethod
        def list_tasks(cls, split: str) -> Sequence[dict[str, Any]]:
            listed = served.tasks(Split(split))
            return [
                {"split": split, "index": index, "id": task.task_id, "goal": task.goal}
                for index, task in enumerate(listed)
            ]

        async def setup(self) -> None:
            spec = self.task_spec
            place = str(spec.get("split")), int(str(spec.get("index")))
            task = await asyncio.to_thread(task_at, served, *place)
            self._first = await self._seat.reset(task)

        async def teardown(self) -> None:
            self._seat.leave()

        async def get_prompt(self) -> list[TextBlock | ImageBlock]:
            assert self._first is not None, "the server sets up before it asks"
            prompt = served.description.prompt
            before = [prompt.system] if prompt is not None else []
            after = [prompt.instruction] if prompt is not None else []
            blocks = _blocks(self._first, before=before, after=after)
            return blocks

        @tool
        async def act(self, params: Act) -> ToolOutput:
            """Do one action in the environment; the result is what is seen then."""
            result = await self._seat.step(params.action)
            return ToolOutput(
                blocks=_blocks(result.observation),
                reward=result.reward,
                finished=result.terminated or result.truncated,
                metadata={
                    "terminated": result.terminated,
                    "truncated": result.truncated,
                    "success": result.success,
                    "action_accepted": result.action_accepted,
                },
            )

    return Seated


def _blocks(
    observation: Observation, *, before: Sequence[str] = (), after: Sequence[str] = ()
) -> list[TextBlock | ImageBlock]:
    actions = observation.admissible_actions
    listed = [] if actions is None else [f"Actions: {' | '.join(actions)}"]
    text = "\n\n".join([*before, observation.text, *listed, *after])
    pictures = [
        ImageBlock(data=base64.b64encode(one.data or b"").decode(), mimeType=one.media_type)
        for one in observation.pictures
    ]
    return [TextBlock(text=text), *pictures]
