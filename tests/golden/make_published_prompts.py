"""Writes `published_prompts.json.gz`: prompts that verl-agent's and AgentGym's own code composed.

    git clone https://github.com/shatianming5/verl-agent     # at 3483665
    git clone https://github.com/WooooDyy/AgentGym           # at 3ef9235
    git clone https://github.com/WooooDyy/AgentGym-RL        # at 82402a9
    uv run --no-sync --with requests python tests/golden/make_published_prompts.py \
        verl-agent AgentGym/agentenv AgentGym-RL/AgentGym-RL

Our environments are played for 50 prompts each, with an action among them that is none. The
`EnvironmentManager`s of verl-agent, with its projections of replies, are given what its
environments would have answered; of AgentGym-RL the `RolloutHandler` keeps the chat that AgentGym's
clients begin. The file has our observations beside their prompts. WebArena's sites are not played:
its chats hold WebShop's pages, since a chat takes any text.
"""

import gzip
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import gymnasium

from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Split
from longhaul_envs.sources import environment_source

FILE = Path(__file__).parent / "published_prompts.json.gz"
NUM_EPISODES, NUM_STEPS, SEED = 5, 10, 24
NO_ACTION = "sing a song"
SEARCHES = ("<search>member of a family</search>", "<search>kind of fish</search>", NO_ACTION)
HARD = ("<search>zzzz</search>", "<answer>nobody</answer>")
CELLS = {"#": 0, "_": 1, ".": 2, "*": 3, "$": 4, "@": 5, "+": 6}
"""gym-sokoban's numbers of the cells of our grid."""

VERL_AGENT: list[tuple[str, dict[str, Any], str, str]] = [
    ("longhaul/ALFWorld-v0", {}, "AlfWorldEnvironmentManager", "alfworld"),
    ("longhaul/WebShop-v0", {"observation": "sep"}, "WebshopEnvironmentManager", "webshop"),
    ("longhaul/Sokoban-v0", {"size": 6}, "SokobanEnvironmentManager", "sokoban"),
    ("longhaul/Sokoban-v0", {"observation": "image"}, "SokobanEnvironmentManager", "sokoban"),
    ("longhaul/Search-v0", {"max_answers": 9}, "SearchEnvironmentManager", "search"),
    ("longhaul/NumberLine-v0", {"observation": "image"}, "GymCardEnvironmentManager", ""),
    ("longhaul/Blackjack-v0", {"observation": "image"}, "GymCardEnvironmentManager", ""),
    ("longhaul/EZPoints-v0", {"observation": "image"}, "GymCardEnvironmentManager", ""),
    ("longhaul/Points24-v0", {"observation": "image"}, "GymCardEnvironmentManager", ""),
]
"""Environment, options, and the manager and projection of theirs."""
AGENTGYM = [
    ("longhaul/TextCraft-v0", "textcraft", "TextCraftEnvClient"),
    ("longhaul/BabyAI-v0", "babyai", "BabyAIEnvClient"),
    ("longhaul/ScienceWorld-v0", "sciworld", "SciworldEnvClient"),
    ("longhaul/WebShop-v0", "webshop", "WebshopEnvClient"),
    ("longhaul/Search-v0", "searchqa", "SearchQAEnvClient"),
    ("longhaul/WebShop-v0", "webarena", "WebarenaEnvClient"),
]
"""Environment that is played, and the task and client of theirs."""


def played(environment: str, options: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The steps of an episode: `text`, `actions` that are admissible, and the `action` taken."""
    spec = GymEnvironmentSpec(environment_id=environment, options=options)
    source = environment_source(spec)
    assert isinstance(source, GymSource)
    task = source.tasks(Split.TRAIN)[number]
    world: Any = gymnasium.make(environment, **options).unwrapped
    random = Random(f"{SEED} {environment} {number}")
    seen, info = world.reset(seed=task.seed, options={"task_id": task.task_id})
    steps: list[dict[str, Any]] = []
    for place in range(NUM_STEPS):
        actions = info.get("admissible_actions")
        if environment == "longhaul/Search-v0":
            action = random.choice(SEARCHES + HARD)
        elif place == 2:
            action = NO_ACTION
        elif environment == "longhaul/WebShop-v0" and actions is None:
            action = f"search[{random.choice(('desk lamp', 'rain jacket', 'mug'))}]"
        elif actions:
            action = random.choice(actions)
        else:
            action = world.expert_action() or "="
        text: str = seen["text"] if options.get("observation") == "image" else seen
        if environment == "longhaul/WebShop-v0" and number == 4 and place > 6:
            text += " [SEP] " + "long " * 2000  # beyond what theirs shows with the past
        steps.append({"text": text, "actions": actions and list(actions), "action": action})
        seen, _, ended, cut, info = world.step(action)
        if ended or cut:
            break
    world.close()
    return steps


def prompts_of_verl_agent(
    manager: str, projection: str, environment: str, steps: list[dict[str, Any]], history: int
) -> list[str]:
    """What verl-agent's manager composes for the steps of an episode."""
    world = Steps(environment, steps)
    package = "agent_system.environments"
    project: Any = unread
    if projection:
        place = f"agent_system/environments/env_package/{projection}/projection.py"
        module = loaded(Path(sys.argv[1]) / place)
        project = getattr(module, f"{projection}_projection")
    config = SimpleNamespace(env=SimpleNamespace(history_length=history, env_name=environment))
    composes = getattr(importlib.import_module(f"{package}.env_manager"), manager)(
        world, project, config
    )
    prompts = [composes.reset(None)[0]["text"][0]]
    for step in steps[:-1]:
        action = step["action"]
        reply = action if projection == "search" else f"<action>{action}</action>"
        prompts.append(composes.step([f"<think>I go on.</think>{reply}"])[0]["text"][0])
    return prompts


def unread(replies: list[str]) -> tuple[list[str], list[int]]:
    """In place of the projection of card games, whose prompts show no action."""
    return replies, [1] * len(replies)


class Steps:
    """What one of verl-agent's environments would answer in an episode of ours."""

    def __init__(self, environment: str, steps: list[dict[str, Any]]) -> None:
        self._name, self._steps, self._place = environment, steps, 0
        image = "Goal: push" in steps[0]["text"] and "#" not in steps[0]["text"]
        self.mode = "rgb_array" if image else "text"

    @property
    def get_admissible_commands(self) -> list[list[str]]:
        """ALFWorld's, which lists `help` too."""
        return [[*(self._steps[self._place]["actions"] or []), "help"]]

    def reset(self, **_: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """As theirs: observations and infos, with pictures between them in ALFWorld."""
        seen, info = [self._seen()], [self._info()]
        return (seen, None, info) if "ALFWorld" in self._name else (seen, info)

    def step(self, actions: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """As theirs; every reward is 0, and nothing ends."""
        assert len(actions) == 1
        self._place += 1
        seen, *rest = self.reset()
        return (seen, *rest[:-1], [0.0], [False], rest[-1])

    def render(self, mode: str) -> list[str]:
        """Of a picture's history, which no prompt shows."""
        return [mode]

    def _info(self) -> dict[str, Any]:
        step = self._steps[self._place]
        actions = step["actions"]
        formula = step["text"].partition("Formula:")[2].partition("\n")[0].split()
        clicks = ["search"] if actions is None else [each[6:-1] for each in actions]
        return {
            "available_actions": {"has_search_bar": actions is None, "clickables": clicks},
            "Formula": [part for part in formula if part != "_"],  # a refused one adds none there
        }

    def _seen(self) -> Any:  # noqa: ANN401
        text = self._steps[self._place]["text"]
        head, _, rest = text.partition("\n")
        if self.mode == "rgb_array" or "Formula" in text or head == text:
            import numpy as np

            picture = np.zeros((2, 2, 3), np.uint8)
            return text if "[SEP]" in text else picture
        match self._name:
            case "longhaul/ALFWorld-v0":
                goal = head.removeprefix("Goal: ")
                greeting = "-= Welcome to TextWorld, ALFRED! =-"
                first = f"{greeting}\n\n{rest}\n\nYour task is to: {goal}."
                return rest if self._place else first
            case "longhaul/Sokoban-v0":
                return grid(rest)
            case "longhaul/Search-v0":
                found = rest.partition("\n")[2]
                question = head.removeprefix("Question: ")
                return f"<information>{found}</information>" if self._place else question
            case _:
                return text


def loaded(file: Path) -> Any:  # noqa: ANN401
    """A module of theirs, without the package around it and all that this imports."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grid(rows: str) -> str:
    """As gym-sokoban's `render` in verl-agent writes the cells of our grid."""
    folder = "agent_system/environments/env_package/sokoban/sokoban/env.py"
    source = (Path(sys.argv[1]) / folder).read_text("utf-8")
    table = source.partition("GRID_LOOKUP = ")[2].partition("}")[0]
    lookup: dict[int, str] = eval(table + "}")
    return "\n".join(
        "".join(lookup[CELLS[cell]] for cell in row.split()) for row in rows.splitlines()
    )


class Bytes:
    """A tokenizer whose tokens are bytes: the handler's chat does not depend on it."""

    def encode(self, text: str, **_: Any) -> list[int]:  # noqa: ANN401
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode()


def chat_of_agentgym(client: str, steps: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The messages of AgentGym-RL's handler after the steps of an episode."""
    of_client: Any = getattr(importlib.import_module("agentenv.envs"), client)
    start = getattr(of_client, "conversation_start", None)
    if start is None:
        module: Any = sys.modules[of_client.__module__]
        react = importlib.import_module("agentenv.controller.types").ActionFormat.REACT
        adapter = getattr(of_client, "adapter_cls", None) or module.WebshopAdapter
        start = adapter.conversation_start_dict[react]
    schemas = loaded(Path(sys.argv[3]) / "verl/workers/rollout/schemas.py")
    opening = [
        schemas.Message("user", start[0]["value"]),
        schemas.Message("assistant", start[1]["value"]),
    ]
    ids: list[int] = Bytes().encode("<|im_end|>")
    chat = schemas.RolloutHandler(
        opening, "", 0, 0, False, ids, [], [], [1] * len(ids), [], [], [0] * len(ids), [], [],
        [0] * len(ids), [], [],
    )  # fmt: skip
    for place_of, step in enumerate(steps):
        if place_of:
            chat.add_assistant_message(Bytes(), replied(steps[place_of - 1]["action"]))
        chat.add_user_message(Bytes(), step["text"])
    return [message.to_dict() for message in chat.messages]


def replied(action: str) -> str:
    """A reply in the form that AgentGym asks for."""
    return f"Thought:\nI go on.\n\nAction:\n{action}"


def main() -> None:
    """Compose with the authors' code of the folders that the command names, and write the file."""
    sys.path[:0] = sys.argv[1:3]
    importlib.import_module("longhaul_envs.registry")
    prompts: list[dict[str, Any]] = []
    for environment, options, manager, projection in VERL_AGENT:
        history = 4 if projection == "search" else 2
        composed, number = 0, 0
        while composed < NUM_EPISODES * NUM_STEPS:
            steps = played(environment, options, number)
            texts = prompts_of_verl_agent(manager, projection, environment, steps, history)
            prompts.append(
                {"environment": environment, "options": options, "history": history}
                | {"steps": steps, "prompts": texts}
            )
            composed, number = composed + len(steps), number + 1
    chats: list[dict[str, Any]] = []
    for environment, task, client in AGENTGYM:
        options = {"tasks": ["agentgym"]} if task == "sciworld" else {}
        composed, number = 0, 0
        while composed < NUM_EPISODES * NUM_STEPS:
            steps = played(environment, options, number)
            chats.append({"task": task, "steps": steps, "chat": chat_of_agentgym(client, steps)})
            composed, number = composed + len(steps), number + 1
    written = {
        "source": "verl-agent 3483665, AgentGym 3ef9235 and AgentGym-RL 82402a9, by "
        "tests/golden/make_published_prompts.py",
        "verl-agent": prompts,
        "agentgym": chats,
    }
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
