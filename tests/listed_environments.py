"""The installed environments, as the contract suite asks them, and what each lacks here.

Run as a program it writes the golden hashes of their task lists anew, once a change of tasks is
meant; what lacks something here keeps its hashes:

    uv run python tests/listed_environments.py
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from longhaul_core.discovery import installed_environments
from longhaul_core.environment import EnvironmentSource
from longhaul_core.errors import ConfigError, MachineError
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Split
from longhaul_envs.sources import environment_source
from longhaul_envs.task_lists import content_hash

GOLDEN = Path(__file__).parent / "golden" / "task_lists.json"
WRITE_ANEW = "uv run python tests/listed_environments.py"

Options = Mapping[str, object]

INSTALLED = list(installed_environments())
FASTER: Mapping[str, Options] = {
    "longhaul/ALFWorld-v0": {  # a kitchen takes a second to reset
        "task_types": [2, 6],
        "num_train_games": 3,
        "num_eval_games": 3,
    },
    "longhaul/BabyAI-v0": {"levels": ["GoToLocalS5N2"]},  # the default room takes 20 s
    "longhaul/MiniWoB-v0": {"tasks": ["click-link", "enter-text"]},  # a reset takes a second
    "longhaul/SQL-v0": {"num_databases": 3},
    "longhaul/ScienceWorld-v0": {"tasks": ["find-plant"], "variations_per_task": 1},
    "longhaul/TextWorld-v0": {"go": 1, "num_train_games": 1, "num_eval_games": 1},  # built: 10 s
}
"""Options under which an environment is held to the contract, where its defaults take long."""


def source_of(environment_id: str, options: Options | None = None) -> EnvironmentSource:
    """The source under `options`, or under those of the contract suite."""
    chosen = FASTER.get(environment_id, {}) if options is None else options
    return environment_source(GymEnvironmentSpec(environment_id=environment_id, options=chosen))


@cache
def why_missing(environment_id: str) -> str | None:
    """What it lacks here: an extra, a program, data, a licence, a server. None: nothing."""
    try:
        source = source_of(environment_id)
        source.describe()
        source.tasks(Split.TEST)
        if isinstance(source, GymSource):
            source.spec.make().close()
    except (ConfigError, MachineError) as error:
        return str(error)
    return None


def skip_if_missing(environment_id: str) -> None:
    """Skip the test of an environment that lacks something; `skips.py` lists what it may lack."""
    if reason := why_missing(environment_id):
        pytest.skip(f"{environment_id} is not run: {reason}")


def task_list_hashes(environment_id: str) -> dict[str, str]:
    """By split, the number of its tasks and a hash of all that identifies them."""
    hashes: dict[str, str] = {}
    for split in Split:
        tasks = source_of(environment_id).tasks(split)
        rows = [[t.task_id, t.seed, t.version, t.data_hash, t.goal] for t in tasks]
        hashes[split.value] = f"{len(rows)} {content_hash(json.dumps(rows))}"
    return hashes


def main() -> None:
    """Write the golden hashes anew."""
    golden: dict[str, object] = json.loads(GOLDEN.read_text("utf-8"))
    for environment_id in INSTALLED:
        if why_missing(environment_id) is None:
            golden[environment_id] = task_list_hashes(environment_id)
    kept = {name: golden[name] for name in sorted(golden.keys() & set(INSTALLED))}
    GOLDEN.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
