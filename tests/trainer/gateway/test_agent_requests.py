"""What command-line agents were recorded to ask is answered as they read it.

`make_agent_requests.py` beside the recorded requests has how these were made.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gateways import Played, Stage, StreamingScriptedPolicy, responder_of
from longhaul_core.types import Continuation

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "golden/agent_requests.json.gz").read_bytes())
)
CALLS = {
    "codex": '"type":"function_call","status":"completed"',
    "codex, as GPT-5.5": '"type":"custom_tool_call","status":"completed"',
    "codex, as GPT-5.6": '"type":"custom_tool_call","status":"completed"',
    "codex, as GPT-5.5, with an MCP server": '"status":"completed","call_id":',
    "gemini": '"functionCall":',
    "claude": '"type":"tool_use"',
    "claude, as npm chooses it on Node.js 20": '"type":"tool_use"',
    "claude, with all its tools": '"type":"tool_use"',
    "qwen": '"tool_calls":[',
    "opencode": '"tool_calls":[',
    "mini-swe-agent": '"tool_calls":[',
    "aider": "<call>",
}
"""What an answer has that calls a tool, and no other one."""
START, TITLE = Continuation.START, "A greeting"


@pytest.mark.parametrize("agent", CALLS)
def test_a_recorded_agent_plays_its_episode_token_by_token(stage: Stage, agent: str) -> None:
    recorded = RECORDED[agent]

    async def program(one: Played) -> None:
        answers: list[str] = []
        for request in recorded["requests"]:
            answer = await one.http.post(
                request["path"], headers=request["headers"], json=request["body"]
            )
            assert answer.status_code == 200, answer.text
            answers.append(answer.text)
        await one.episode.close()

        replies = recorded["replies"]
        told = [CALLS[agent] in answer for answer in answers]
        assert told == ["<call>" in reply for reply in replies]
        calls = [call for step in one.end().steps for call in step.calls]
        tokens = [call.sampled for call in calls if call.sampled is not None]
        assert [one.action_tokens for one in tokens] == [tuple(said.encode()) for said in replies]
        for before, after, call in zip(tokens, tokens[1:], calls[1:], strict=False):
            if call.continuation is not START:
                known = (*before.prompt_tokens, *before.action_tokens)
                assert after.prompt_tokens[: len(known)] == known
        assert sum(call.continuation is START for call in calls) == 1 + (TITLE in replies)

    policy = StreamingScriptedPolicy(recorded["replies"])
    responder = responder_of(policy, max_reply_tokens=4_000)
    stage.played(program, policy, models=dict.fromkeys(("policy", "*"), responder))


@pytest.mark.parametrize("agent", CALLS)
def test_the_guides_table_is_of_what_was_recorded(agent: str) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/agents.md").read_text("utf-8")
    command = RECORDED[agent]["command"].splitlines()[-1]
    task = "'Write hello into greeting.txt'"
    words = [word for word in command.replace(task, "TASK").split() if not word.startswith("--")]

    assert RECORDED[agent]["version"] in guide
    assert [word for word in words if word not in guide] == []
