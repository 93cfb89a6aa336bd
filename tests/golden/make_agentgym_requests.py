"""Writes `agentgym_requests.json.gz`: what AgentGym's clients asked our server, and its answers.

    git clone https://github.com/WooooDyy/AgentGym    # at 3ef9235
    uv run --with requests python tests/golden/make_agentgym_requests.py AgentGym/agentenv

Each client of `agentenv/envs` that has an environment here is made as AgentGym and AgentGym-RL
make it, and plays item 1 as our expert does, with one reply that is no action. What it makes of
the answers is compared with the episode that is played without a server.
"""

import gzip
import importlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from environment_server import running_server
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Observation, Split
from longhaul_envs.play import Policy, TextEnvironment, expert_policy, play
from longhaul_envs.sources import environment_source
from ports import free_port
from web_sites import running_site
from webarena_tasks import webarena_options

FILE = Path(__file__).parent / "agentgym_requests.json.gz"
ITEM, HORIZON = 1, 12
NO_ACTION = "sing a song"
WORDLE = "WordleEnvClient"
"""Whose first observation is the list of words."""
PLAYED: list[tuple[str, str, Mapping[str, object]]] = [
    ("TextCraftEnvClient", "longhaul/TextCraft-v0", {"depth": 2}),
    ("TextCraftEnvClient", "longhaul/Sokoban-v0", {"size": 6}),
    ("MazeEnvClient", "longhaul/Maze-v0", {}),
    (WORDLE, "longhaul/Wordle-v0", {}),
    ("BabyAIEnvClient", "longhaul/BabyAI-v0", {"levels": ["GoToLocalS5N2"]}),
    ("WebshopEnvClient", "longhaul/WebShop-v0", {"num_products": 40}),
    ("SearchQAEnvClient", "longhaul/Search-v0", {}),
    ("SqlGymEnvClient", "longhaul/SQL-v0", {"num_databases": 3, "form": "single"}),
    (
        "SciworldEnvClient",
        "longhaul/ScienceWorld-v0",
        {"tasks": ["find-plant"], "variations_per_task": 3},
    ),
    (
        "AlfWorldEnvClient",
        "longhaul/ALFWorld-v0",
        {"task_types": [2, 6], "num_train_games": 3, "num_eval_games": 3},
    ),
]
"""Client, environment and its options."""
WEBARENA = "WebarenaEnvClient"
BROWSED = ("click [4]", "stop [A first book]")
"""What is done on the small site of the tests, which no expert knows."""
SITE = "http://site.test"
"""Stands in the file for the address of that site, which is another one each time."""


class Requests:
    """Stands in the client's module for `requests`, and keeps what was asked and answered."""

    def __init__(self, requests: Any) -> None:  # noqa: ANN401
        self._requests = requests
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._requests, name)

    def get(self, url: str, **given: Any) -> Any:  # noqa: ANN401
        return self._kept("GET", url, given)

    def post(self, url: str, **given: Any) -> Any:  # noqa: ANN401
        return self._kept("POST", url, given)

    def _kept(self, method: str, url: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401
        answer = self._requests.request(method, url, **given)
        path = "/" + url.split("/", 3)[3]
        body = given.get("json")
        self.asked.append(
            {
                "method": method,
                "path": path,
                "body": None if body is None else dict(body),
                "status": answer.status_code,
                "answer": answer.json(),
            }
        )
        return answer


def recorded(
    name: str, environment: str, options: Mapping[str, object], *, policy: Policy = expert_policy
) -> dict[str, Any]:
    """What the client of that name asked and was answered in an episode."""
    source = environment_source(GymEnvironmentSpec(environment_id=environment, options=options))
    assert isinstance(source, GymSource)
    here = source.spec.make()
    task = source.tasks(Split.TRAIN)[ITEM]
    known = play(here, task, policy, horizon=HORIZON)
    here.close()

    client_class: Any = getattr(importlib.import_module("agentenv.envs"), name)
    module: Any = sys.modules[client_class.__module__]
    requests = Requests(importlib.import_module("requests"))
    module.requests = requests
    port = free_port()
    served: dict[str, Any] = {
        "id": environment,
        "options": options,
        "import_modules": [],
        "limits": {"num_workers": 1},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(served, folder=Path(folder), settings={"dialects": {"agentgym": port}}),
    ):
        client = client_class(env_server_base=f"http://127.0.0.1:{port}", data_len=10)
        client.reset(ITEM)
        first = client.info["vocab"][-1] if name == WORDLE else known.first_observation.text
        assert first in client.observe(), client.observe()
        client.step(replied(name, NO_ACTION))
        client.reset(ITEM)
        for action, result in zip(known.actions, known.results, strict=True):
            output = client.step(replied(name, action))
            assert output.state.startswith(result.observation.text), (output, result)
            assert output.done == (result.terminated or result.truncated), (output, result)
        if hasattr(client, "close"):
            client.close()
    module.requests = importlib.import_module("requests")
    return {
        "client": name,
        "environment": environment,
        "options": options,
        "asked": requests.asked,
    }


def recorded_on_a_site() -> dict[str, Any]:
    """The same of WebArena's client, on the small site of the tests."""
    left = iter(BROWSED)

    def browse(environment: TextEnvironment, observation: Observation) -> str | None:
        del environment, observation
        return next(left, None)

    with tempfile.TemporaryDirectory() as folder, running_site() as site:
        options = webarena_options(Path(folder), site.address)
        play = recorded(WEBARENA, "longhaul/WebArena-v0", options, policy=browse)
        return json.loads(json.dumps(play | {"options": {}}).replace(site.address, SITE))


def replied(client: str, action: str) -> str:
    """A policy's reply that takes `action`, in the form that the client reads."""
    if client in ("SearchQAEnvClient", "SqlGymEnvClient"):
        return action  # read as it is
    if client == WEBARENA:
        return f"In summary, the next action I will perform is ```{action}```"
    if client == WORDLE and action != NO_ACTION:
        action = " ".join(action)
    return f"Thought:\nI go on.\n\nAction:\n{action}"


def main() -> None:
    """Play with the clients of the folder that the command names, and write the file."""
    sys.path.insert(0, sys.argv[1])
    written = {
        "source": "the clients of WooooDyy/AgentGym 3ef9235, agentenv/agentenv/envs, against our "
        "server, by tests/golden/make_agentgym_requests.py",
        "plays": [*(recorded(*one) for one in PLAYED), recorded_on_a_site()],
    }
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
