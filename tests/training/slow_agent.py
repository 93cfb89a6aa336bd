"""A program that walks about an island, and whose first episode waits for an update at each turn.

It is a function: it plays in the process of the agent loop.
"""

import asyncio
import importlib
import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import openai

from longhaul_trainer.play.programs.program import Endpoint

sys.path.append(str(Path(__file__).parents[2] / "examples" / "agents"))
island: Any = importlib.import_module("island")
openai_agent: Any = importlib.import_module("openai_agent")

FOLDER = "LONGHAUL_TEST_FOLDER"
"""Variable: where the run is."""
LONGEST_SECONDS = 200.0
UPDATES = "SELECT count(*) FROM policy_versions WHERE training_step > 0"


async def play(task: dict[str, list[int]], endpoint: Endpoint) -> dict[str, object]:
    """Play an island by streamed replies; one of the run's episodes waits after its first turn."""
    hunt, turns = island.Island(task), 0
    messages: Any = [
        {"role": "system", "content": island.RULES},
        {"role": "user", "content": hunt.look()},
    ]
    async with openai.AsyncOpenAI(**endpoint.openai) as client:
        while not hunt.is_over:
            async with client.chat.completions.stream(
                model="auto", messages=messages, tools=[openai_agent.MOVE]
            ) as stream:
                async for _ in stream:
                    pass
                message = (await stream.get_final_completion()).choices[0].message
            messages.append(json.loads(message.model_dump_json(exclude_none=True)))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                seen = openai_agent.moved(hunt, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": seen})
            turns += 1
            if turns == 1:
                await _wait_if_first()
    return {"reward": hunt.total, "success": hunt.found}


async def _wait_if_first() -> None:
    folder = Path(os.environ[FOLDER])
    try:
        (folder / "slow").touch(exist_ok=False)
    except FileExistsError:
        return
    latest = time.monotonic() + LONGEST_SECONDS
    store = folder / "longhaul.db"
    while not _updates(store) and time.monotonic() < latest:  # noqa: ASYNC110  a store says it
        await asyncio.sleep(0.2)


def _updates(store: Path) -> int:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return int(connection.execute(UPDATES).fetchone()[0])
    finally:
        connection.close()
