"""Published prompts, byte for byte beside what their authors' own code composed.

`tests/golden/make_published_prompts.py` has how these were made.
"""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.memory import MemoryContext, build_memory
from longhaul_core.types import Message, Observation, Picture
from longhaul_envs.published import published_template

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "golden/published_prompts.json.gz").read_bytes())
)
CONTEXT = cast("MemoryContext", None)
"""Neither memory asks the model."""


def observation_of(step: dict[str, Any], *, picture: bool) -> Observation:
    return Observation(
        text=step["text"],
        admissible_actions=None if step["actions"] is None else tuple(step["actions"]),
        pictures=(Picture.of(b"a picture"),) if picture else (),
    )


def text_of(message: Message) -> str:
    """With a picture where the authors write one."""
    parts = (message.content,) if isinstance(message.content, str) else message.content
    return "".join(part if isinstance(part, str) else "<image>" for part in parts)


@pytest.mark.parametrize(
    "environment", sorted({f"{e['environment']} {e['options']}" for e in RECORDED["verl-agent"]})
)
def test_verl_agent_s_prompts_are_those_of_its_own_code(environment: str) -> None:
    composed = 0
    for episode in RECORDED["verl-agent"]:
        if f"{episode['environment']} {episode['options']}" != environment:
            continue
        template = published_template(
            "verl-agent",
            environment_id=episode["environment"],
            options=episode["options"],
            memory="window",
        )
        memory = build_memory("window", size=episode["history"], template=template)
        picture = episode["options"].get("observation") == "image"
        for step, theirs in zip(episode["steps"], episode["prompts"], strict=True):
            seen = observation_of(step, picture=picture)
            (prompt,) = memory.compose(seen)
            assert text_of(prompt) == theirs
            written = memory.write(
                observation=seen, reply="", action=step["action"], context=CONTEXT
            )
            asyncio.run(written)
            composed += 1
    assert composed >= 50


@pytest.mark.parametrize("task", sorted({chat["task"] for chat in RECORDED["agentgym"]}))
def test_agentgym_s_chats_are_those_of_its_own_code(task: str) -> None:
    template = published_template(
        "agentgym", environment_id="longhaul/AgentGym-v0", options={"task": task}, memory="full"
    )
    composed = 0
    for episode in (chat for chat in RECORDED["agentgym"] if chat["task"] == task):
        memory = build_memory("full", template=template)
        for number, step in enumerate(episode["steps"]):
            seen = Observation(text=step["text"])  # the clients were given texts without lists
            prompt = [
                {"role": message.role, "content": text_of(message)}
                for message in memory.compose(seen)
            ]
            assert prompt == episode["chat"][: 3 + 2 * number]
            reply = f"Thought:\nI go on.\n\nAction:\n{step['action']}"
            written = memory.write(
                observation=seen, reply=reply, action=step["action"], context=CONTEXT
            )
            asyncio.run(written)
            composed += 1
    assert composed >= 50


def test_a_prompt_that_its_authors_have_not_is_refused() -> None:
    def template(name: str, environment: str, memory: str, **options: object) -> None:
        published_template(
            name, environment_id=f"longhaul/{environment}-v0", options=options, memory=memory
        )

    with pytest.raises(ConfigError, match=r'goes with memory.kind = "window", .* got "full"'):
        template("verl-agent", "ALFWorld", "full")
    with pytest.raises(ConfigError, match=r'WebShop-v0 with observation = ""; it has them for'):
        template("verl-agent", "WebShop", "window")
    with pytest.raises(ConfigError, match=r"no words for longhaul/BabyAI-v0 .* tasks textcraft"):
        template("agentgym", "BabyAI", "full")
    with pytest.raises(ConfigError, match="no words for longhaul/AgentGym-v0"):
        template("agentgym", "AgentGym", "full", task="maze")
