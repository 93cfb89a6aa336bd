"""`longhaul-api --mcp`, asked by the official client over standard input and output."""

import json
import sys
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from apps.conftest import SampleStore
from longhaul_core.sql_box.cookbook import questions


def test_a_program_asks_the_store(sample: SampleStore) -> None:
    found = anyio.run(_session, sample)

    assert found["tools"] == {"transcript", "schema", "sql", *(one.name for one in questions())}
    assert found["read_only"]
    assert found["parameters"] == {"run", "training_step", "most"}
    assert found["required"] == ["run", "training_step"]
    assert json.loads(found["sql"])["rows"] == [[sample.run_id]]
    assert found["says"] == "The run. Its id, the beginning of just one, or `last`."
    assert json.loads(found["worst"])["columns"][0] == "episode_id"
    assert json.loads(found["last"]) == json.loads(found["worst"])
    assert found["unknown"].isError
    assert (
        f"no run 'none' in the store; it holds {sample.run_id}" in found["unknown"].content[0].text
    )
    assert found["refused"].isError
    assert "DELETE is not allowed" in found["refused"].content[0].text
    assert "advantage double precision" in found["schema"]
    assert sample.solved.steps[0].action in found["transcript"]
    assert "1 more steps" in found["transcript"] or len(sample.solved.steps) <= 1
    assert found["missing"].isError
    assert found["backwards"].isError
    assert "first_step must be at least 0" in found["backwards"].content[0].text


async def _session(sample: SampleStore) -> dict[str, Any]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "longhaul_api.main", "--mcp", "--store", sample.url],
    )
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}

        async def text(name: str, **arguments: str | int) -> str:
            answer = await session.call_tool(name, arguments)
            assert not answer.isError, answer
            part: Any = answer.content[0]
            return part.text

        steps = len(sample.solved.steps)
        return {
            "tools": set(tools),
            "read_only": all(t.annotations and t.annotations.readOnlyHint for t in tools.values()),
            "parameters": set(tools["best_steps"].inputSchema["properties"]),
            "says": tools["best_steps"].inputSchema["properties"]["run"]["description"],
            "required": tools["best_steps"].inputSchema["required"],
            "sql": await text("sql", statement="SELECT run_id FROM run_summary"),
            "worst": await text("worst_episodes", run=sample.run_id),
            "last": await text("worst_episodes", run="last"),
            "unknown": await session.call_tool("worst_episodes", {"run": "none"}),
            "refused": await session.call_tool("sql", {"statement": "DELETE FROM runs"}),
            "schema": await text("schema", relation="step_detail"),
            "transcript": await text(
                "transcript",
                episode_id=sample.solved.summary.episode_id,
                num_steps=max(1, steps - 1),
            ),
            "backwards": await session.call_tool(
                "transcript",
                {"episode_id": sample.solved.summary.episode_id, "first_step": -5},
            ),
            "missing": await session.call_tool("transcript", {"episode_id": "none"}),
        }
