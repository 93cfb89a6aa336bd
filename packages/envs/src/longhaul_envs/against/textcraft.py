"""TextCraft beside AgentGym's: the same actions, step by step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from longhaul_core.types import Split
from longhaul_envs import play
from longhaul_envs.against.originals import Pair, original_module
from longhaul_envs.contract.recording import NONSENSE
from longhaul_envs.textcraft.environment import TextCraft

__all__ = ["pairs"]

_FOLDER, _PACKAGE = "agentenv-textcraft", "agentenv_textcraft"
_HORIZON = 40


def pairs(folder: Path, random: Random) -> Iterator[Pair]:
    """Reward, end and inventory after each step of experts that stray."""
    root = folder / _FOLDER
    crafting = original_module(root, _PACKAGE, "crafting_tree")
    worlds = original_module(root, _PACKAGE, "environment")
    tree = crafting.CraftingTree(minecraft_dir=f"{root / _PACKAGE}/")
    ours = TextCraft()
    tasks = ours.tasks(Split.TRAIN)
    while True:
        task = random.choice(tasks)
        observation = play.start(ours, task)
        goal = observation.text.splitlines()[0].removeprefix("Goal: craft ")
        theirs = worlds.TextCraftEnv(tree, "", f"minecraft:{goal.replace(' ', '_')}")
        for _ in range(_HORIZON):
            listed = observation.admissible_actions or ()
            kinds = (ours.expert_action() or "", random.choice(listed), NONSENSE["unknown words"])
            action = random.choices(kinds, weights=(6, 3, 1))[0]
            result = play.act(ours, action)
            _, reward, terminated, truncated, _ = theirs.step(action)
            case = f"{task.task_id}, {action!r}"
            yield Pair("reward", case, result.reward, float(reward))
            yield Pair("end", case, result.terminated, terminated or truncated)
            shown = str(result.observation.anchor_state).partition(" | ")[2]
            yield Pair("inventory", case, shown, _held(theirs.inventory))
            if result.terminated or terminated:
                break
            observation = result.observation


def _held(inventory: Mapping[str, int]) -> str:
    """Their inventory as ours reads."""
    names = {name.partition(":")[2].replace("_", " "): n for name, n in inventory.items()}
    return ", ".join(f"{n} {name}" for name, n in sorted(names.items())) or "nothing"
