"""Two agents of one program: a planner that says where to go, and a worker that goes there.

Each keeps a conversation of its own. Their names travel with their calls (`extra_body`), so that
the store, the viewer and the estimators can tell them apart.
"""

import json
import os
from typing import Any

import openai
from island import MOVES, RULES, Island, task_here

import longhaul

MODEL = os.environ.get("MODEL", "auto")
PLANNER = "You are the planner. In a few words, which way is the treasure?"
WORKER = f"{RULES} Follow the planner. Answer with one word: up, down, left or right."


def said(client: openai.OpenAI, messages: list[Any], text: str, *, agent: str) -> str:
    """An agent's next reply in its conversation."""
    messages.append({"role": "user", "content": text})
    reply = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=16, extra_body=longhaul.extra_body(agent=agent)
    )
    answer = reply.choices[0].message.content or ""
    messages.append({"role": "assistant", "content": answer})
    return answer


def main() -> None:
    island, client = Island(task_here()), openai.OpenAI()
    planner: list[Any] = [{"role": "system", "content": PLANNER}]
    worker: list[Any] = [{"role": "system", "content": WORKER}]
    seen = island.look()
    while not island.is_over:
        plan = said(client, planner, seen, agent="planner")
        way = said(client, worker, f"{seen}\nThe planner says: {plan}", agent="worker")
        named = [move for move in MOVES if move in way.lower()]
        seen = island.move(named[0] if named else way[:20])
        longhaul.step(reward=island.reward)
    print(json.dumps({"reward": 0.0, "success": island.found}))


if __name__ == "__main__":
    main()
