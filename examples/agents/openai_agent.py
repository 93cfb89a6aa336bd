"""A tool-using agent, written with the `openai` package.

It runs with a hosted model (`OPENAI_API_KEY=… MODEL=gpt-4o-mini python openai_agent.py`), and is
trained as it is by a run that says `agent.command = ["python", "openai_agent.py"]`. Its two lines
with `longhaul` are optional: they give each step its own reward and state, so that steps of equal
states are compared (GiGPO).
"""

import json
import os
from typing import Any

import openai
from island import RULES, Island, task_here

import longhaul

MOVE: Any = {
    "type": "function",
    "function": {
        "name": "move",
        "description": "Go one square.",
        "parameters": {
            "type": "object",
            "properties": {
                "direction": {"type": "string", "enum": ["up", "down", "left", "right"]}
            },
            "required": ["direction"],
        },
    },
}


def moved(island: Island, arguments: str) -> str:
    """What the tool answers; models write arguments that are none."""
    try:
        return island.move(str(json.loads(arguments)["direction"]))
    except (ValueError, KeyError, TypeError) as error:
        return f"move needs a direction: {error!r}"


def main() -> None:
    island, client = Island(task_here()), openai.OpenAI()
    messages: list[Any] = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": island.look()},
    ]
    longhaul.step(anchor_state=island.state)
    while not island.is_over:
        reply = client.chat.completions.create(
            model=os.environ.get("MODEL", "auto"), messages=messages, tools=[MOVE]
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            if call.type != "function":
                continue
            seen = moved(island, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": seen})
        longhaul.step(reward=island.reward, anchor_state=island.state)
    print(json.dumps({"reward": 0.0, "success": island.found}))  # the steps have their rewards


if __name__ == "__main__":
    main()
