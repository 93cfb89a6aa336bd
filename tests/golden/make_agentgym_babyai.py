r"""Writes `agentgym_babyai.json.gz`: what AgentGym's own BabyAI says, by its server and client.

    git clone https://github.com/WooooDyy/AgentGym    # at 3ef9235
    uv run --no-project --python 3.11 --with "minigrid==2.3.1" --with "gymnasium==0.29.1" \
        --with "gym==0.26.2" --with matplotlib --with requests --with fastapi --with uvicorn \
        python tests/golden/make_agentgym_babyai.py AgentGym

Those are the releases that its `pyproject.toml` asks for. Server and client are imported from the
checkout, and the client's requests are answered by the server's own functions. Of each step are
kept the reply, the client's observation, which ends with the list of actions, the server's reward
and whether it was the last one. Actions are listed ones, those that end the episode well where
there are some, and words that the server refuses. In some episodes the agent turns around until a
success is worth half a point or less, or nothing.
"""

import copy
import gzip
import importlib
import importlib.util
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

FILE = Path(__file__).parent / "agentgym_babyai.json.gz"
NUM_LEVELS, NUM_ITEMS, NUM_EPISODES, NUM_STEPS, SEED = 40, 900, 120, 24, 24
OTHER_WORLDS = (155, 156)
"""Items whose mission MiniGrid 2.3.1 draws from a room that is no longer there."""
OTHER_WORDS = (
    "", "dance", "toggle", "drop", "go to red ball 9", "pick up red ball 1", "check inventory!",
    "Check", "turn", "move  forward.", "TURN LEFT", "go to unicorn 1",
)  # fmt: skip


def server_and_client(checkout: Path) -> tuple[Any, Any]:
    """The server's module, and the class of the client, which speaks to it without HTTP."""
    sys.path.insert(0, str(checkout / "agentenv-babyai"))
    server = importlib.import_module("agentenv_babyai.environment")
    for name in ("agentenv", "agentenv.controller", "agentenv.controller.types"):
        sys.modules[name] = ModuleType(name)  # the rest of the package asks for torch
    base = type("BaseEnvClient", (), {})
    vars(sys.modules["agentenv.controller"]).update(BaseEnvClient=base, BaseTask=object)
    vars(sys.modules["agentenv.controller.types"]).update(
        ConversationMessage=dict, StepOutput=SimpleNamespace
    )
    path = checkout / "agentenv/agentenv/envs/babyai.py"
    spec = importlib.util.spec_from_file_location("agentgym_babyai_client", path)
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)

    def post(url: str, *, timeout: float, json: dict[str, Any] | None = None) -> SimpleNamespace:
        del timeout
        asked = getattr(server.server, url.rpartition("/")[2])
        given = {"idx" if name == "id" else name: value for name, value in (json or {}).items()}
        return SimpleNamespace(status_code=200, json=lambda: asked(**given))

    vars(client)["requests"] = SimpleNamespace(post=post)
    return server, client.BabyAIEnvClient


def ending(world: Any) -> list[str]:  # noqa: ANN401
    """The listed actions that would end the episode well."""
    found: list[str] = []
    for action, moves in world.action_space.items():
        if moves:
            rehearsal = copy.deepcopy(world)
            rehearsal.step(action)
            if rehearsal.done:
                found.append(action)
    return found


def chosen(world: Any, random: Random, *, waits: bool) -> str:  # noqa: ANN401
    """An action for the next reply."""
    listed = [name for name, moves in world.action_space.items() if moves]
    if waits and random.random() < 0.85:
        return "turn left"
    if random.random() < 0.1:
        idle = [name for name, moves in world.action_space.items() if not moves]
        return random.choice([*OTHER_WORDS, *idle])
    if world.error_message and random.random() < 0.1:
        return random.choice(list(world.error_message))
    if not waits and random.random() < 0.7 and (best := ending(world)):
        return random.choice(best)
    rarer = [name for name in listed if name.startswith(("pickup", "toggle", "go through", "drop"))]
    return random.choice(rarer if rarer and random.random() < 0.5 else listed)


def main() -> None:
    """Write the file."""
    server, client_class = server_and_client(Path(sys.argv[1]))
    random = Random(SEED)
    client = client_class("", NUM_ITEMS)
    episodes: list[dict[str, Any]] = []
    for number in range(NUM_EPISODES):
        items = set(range(number % NUM_LEVELS, NUM_ITEMS, NUM_LEVELS)).difference(OTHER_WORLDS)
        item = random.choice(sorted(items))
        with redirect_stdout(StringIO()):  # MiniGrid's
            client.reset(item)
            world = server.server.env[client.env_id]
        waits = world.env.unwrapped.max_steps < NUM_LEVELS and number >= NUM_LEVELS
        steps: list[list[object]] = []
        episodes.append(
            {
                "item": item,
                "level": world.game_name,
                "first": client.observe(),
                "steps": steps,
            }
        )
        for _ in range(NUM_STEPS * (3 if waits else 1)):
            reply = f"Thought:\nI go on.\n\nAction:\n{chosen(world, random, waits=waits)}"
            taken = client.step(reply)
            steps.append([reply, taken.state, client.info["reward"], taken.done])
            if taken.done:
                break
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        file.write(json.dumps(episodes, separators=(",", ":")).encode())
    taken_steps = [step for episode in episodes for step in episode["steps"]]
    ended = sum(bool(step[3]) for step in taken_steps)
    sys.stdout.write(
        f"{FILE.name}: {len(episodes)} episodes, {ended} of them solved, {len(taken_steps)} steps, "
        f"{FILE.stat().st_size:,} bytes\n"
    )


if __name__ == "__main__":
    main()
