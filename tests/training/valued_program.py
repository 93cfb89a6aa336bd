"""A program of two agents, in which not every step is the policy's.

A judge is asked first, whose call is not trained. Then a worker, whose conversation goes on, and a
planner, who is asked for two replies at once, take turns: as many as the task says.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

REFUSED = 400

Message = dict[str, str]


def ask(messages: list[Message], *, n: int = 1, **longhaul: object) -> Message:
    """The first reply."""
    body: dict[str, Any] = {"model": "auto", "messages": messages, "n": n, "longhaul": longhaul}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        reply = json.load(answer)["choices"][0]["message"]
    return {"role": "assistant", "content": str(reply.get("content") or "")}


def asked(text: str) -> Message:
    return {"role": "user", "content": text}


def worth(reply: Message) -> float:
    return len(set(reply["content"])) % 7 / 10


def play(task: dict[str, Any]) -> list[float]:
    """The reward of each step."""
    ask([asked(f"{task['place']}: is it hard?")], train=False, purpose="judge")
    history: list[Message] = []
    rewards = [0.1]
    plan = {"content": "go"}
    for turn in range(task["turns"]):
        history.append(asked(f"Turn {turn}: {plan['content'][:8]}"))
        try:
            done = ask(history, agent="worker")
            history.append(done)
            rewards.append(worth(done))
            plan = ask([asked(f"{task['place']}, turn {turn}: plan.")], n=2, agent="planner")
            rewards.append(worth(plan))
        except urllib.error.HTTPError as refusal:
            if refusal.code != REFUSED:
                raise
            break
    return rewards


def main() -> None:
    result = {"step_rewards": play(json.load(sys.stdin)), "success": False}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
