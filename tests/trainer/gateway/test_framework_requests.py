"""What agents in others' frameworks were recorded to ask is answered as they read it.

`make_framework_requests.py` beside the recorded requests has how these were made.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gateways import Played, Stage, StreamingScriptedPolicy, responder_of
from golden.framework_agents import FRAMEWORKS
from longhaul_trainer.gateway.app import OVERRIDDEN_HEADER

ROOT = Path(__file__).parents[3]
RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((ROOT / "tests/golden/framework_requests.json.gz").read_bytes())
)
CALLED = {
    "chat/completions": '"tool_calls":[',
    "messages": '"type":"tool_use"',
    "responses": '"type":"function_call"',
    "models": '"functionCall":',
}
"""By a part of the address: what an answer has that calls a tool, and no other one."""


def test_every_framework_is_recorded_as_it_stands() -> None:
    replies = {name: tuple(one["replies"]) for name, one in RECORDED.items()}

    assert replies == {name: framework.replies for name, framework in FRAMEWORKS.items()}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_framework_plays_its_episode_and_the_guide_says_how(
    stage: Stage, name: str
) -> None:
    recorded = RECORDED[name]
    replies = recorded["replies"]
    overridden: dict[str, None] = {}

    async def program(one: Played) -> tuple[list[str], int]:
        rest = list(replies)
        for request in recorded["requests"]:
            path = request["path"]
            if "/EPISODE/" in path:  # of agent-lightning, whose addresses name the episode
                path = one.gateway.address + path.replace("EPISODE", one.episode.access.id)
            answer = await one.http.post(path, headers=request["headers"], json=request["body"])
            assert answer.status_code == 200, answer.text
            if path.endswith("/events"):
                assert one.episode.reported.reward == request["body"]["data"]["value"] == 1.0
                continue
            reply = rest.pop(0)
            called = [mark for part, mark in CALLED.items() if part in request["path"]]
            assert any(mark in answer.text for mark in called) == ("<call>" in reply)
            header = answer.headers.get(OVERRIDDEN_HEADER, "")
            overridden.update({part.partition("=")[0]: None for part in header.split(", ") if part})
        assert not rest
        await one.episode.close()

        calls = [call for step in one.end().steps for call in step.calls]
        tokens = [call.sampled.action_tokens for call in calls if call.sampled is not None]
        assert tokens == [tuple(reply.encode()) for reply in replies]
        return [str(c.continuation) for c in calls], len({c.conversation for c in calls})

    policy = StreamingScriptedPolicy(replies)
    responder = responder_of(policy, max_reply_tokens=4_000)
    calls, rows = stage.played(program, policy, models={"policy": responder, "*": responder})

    package = f"{FRAMEWORKS[name].package} {recorded['version']}"
    said = ", ".join(f"`{one}`" for one in overridden)
    line = f"| {name} | {package} | {', '.join(calls)} | {rows} | {said} |".replace("|  |", "| |")
    assert line in (ROOT / "docs/guides/agents.md").read_text("utf-8").splitlines()
