"""Writes `scienceworld_steps.json.gz`: steps of AgentGym's own server of ScienceWorld.

    uv run python tests/golden/make_scienceworld_steps.py CHECKOUT

with a checkout of github.com/WooooDyy/AgentGym; what is recorded came of 3ef9235 over the package
scienceworld 1.2.3. Its class is imported from the checkout and played; nothing of it is kept here.
Actions are an expert's, with random valid ones and words that are no action between them.
"""

import gzip
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from longhaul_core.types import Split
from longhaul_envs import play
from longhaul_envs.against.scienceworld import AuthorsServer, drawn_action, options, words
from longhaul_envs.scienceworld.environment import ScienceWorld

FILE = Path(__file__).parent / "scienceworld_steps.json.gz"
NUM_EPISODES, NUM_STEPS = 20, 30


def main() -> None:
    """Write the file."""
    random = Random(20261128)
    server = AuthorsServer(Path(sys.argv[1]))
    ours = ScienceWorld(**options())
    by_name = {task.task_id.partition("/")[0]: task for task in ours.tasks(Split.TRAIN)}
    episodes: list[dict[str, Any]] = []
    for task in random.sample(list(by_name.values()), NUM_EPISODES):
        seen = play.start(ours, task)
        begun = server.reset(task.task_id)
        steps: list[list[object]] = []
        episodes.append(
            {
                "task": task.task_id,
                "goal": begun["task_description"],
                "first": words(begun["observation"]),
                "steps": steps,
            }
        )
        for _ in range(NUM_STEPS):
            action = drawn_action(ours, seen, random)
            result, theirs = play.act(ours, action), server.step(action)
            steps.append([action, words(theirs["observation"]), theirs["reward"], theirs["done"]])
            if theirs["done"] or result.terminated:
                break
            seen = result.observation
    ours.close()
    server.close()
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        file.write(json.dumps(episodes, separators=(",", ":")).encode())
    number = sum(len(episode["steps"]) for episode in episodes)
    sys.stdout.write(f"{FILE.name}: {number} steps, {FILE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
