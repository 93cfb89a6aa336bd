"""AppWorld's tasks, as its data folder lists them: train, dev as validation, and a test set.

Its splits are kept. Tasks of one scenario, which differ in a person or a number, share the part of
their id before the underscore; a scenario in two splits is refused.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from longhaul_core.environment import Determinism, EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs import data
from longhaul_envs.appworld.process import INSTALLING
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import content_hash

__all__ = ["AppWorldOptions", "checked_id", "source", "tasks"]

_TEST_SETS = ("test_normal", "test_challenge")
_REWARDS = ("success", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppWorldOptions(PackagedOptions):
    """What can be chosen about AppWorld."""

    environment_id = "longhaul/AppWorld-v0"
    rules = ("reward", "seconds_per_step", "max_output_characters")

    python: str = ""
    """Interpreter of the environment that has `appworld`."""
    root: str = ""
    """AppWorld's root, with `data`; empty for the data folder's `appworld`. Chooses tasks."""
    test_set: str = "test_normal"
    """`test_normal` or `test_challenge`. Chooses tasks."""
    reward: str = "success"
    """`success`: 1 if all tests of the task pass; `share`: the share that does. A rule."""
    network: bool = False
    """Whether code may reach the network."""
    memory_gib: int = 4
    """Most address space of its process, 1 to 64."""
    seconds_per_step: int = 60
    """For one execution, 1 to 600. A rule."""
    max_output_characters: int = 10_000
    """Of an execution's output that are shown, 100 to 100,000. A rule."""

    def __post_init__(self) -> None:
        for name, known in (("test_set", _TEST_SETS), ("reward", _REWARDS)):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}"
                )
        for name, least, most in (
            ("memory_gib", 1, 64),
            ("seconds_per_step", 1, 600),
            ("max_output_characters", 100, 100_000),
        ):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(
                    f"{name} must be from {least} to {most:,}, got {getattr(self, name)}"
                )

    @property
    def root_folder(self) -> Path:
        """AppWorld's root."""
        return Path(self.root) if self.root else data.folder("appworld")


def tasks(split: Split, options: AppWorldOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, or all, in the order of AppWorld's list.

    Raises:
        ConfigError: If the data is missing, or a scenario is in two splits.
    """
    listed = {
        Split.TRAIN: _ids(options, "train"),
        Split.VALIDATION: _ids(options, "dev"),
        Split.TEST: _ids(options, options.test_set),
    }
    met: dict[str, Split] = {}
    for part, ids in listed.items():
        for task_id in ids:
            other = met.setdefault(task_id.partition("_")[0], part)
            if other is not part:
                raise ConfigError(
                    f"AppWorld's scenario of {task_id!r} is in {other.value} and in {part.value}"
                )
    data_hash = content_hash(json.dumps({part.value: ids for part, ids in listed.items()}))
    return tuple(
        options.task(task_id, split, goal=_instruction(options, task_id), data_hash=data_hash)
        for task_id in listed[split][:limit]
    )


def checked_id(task_id: str) -> str:
    """`task_id`, which the package takes for the name of a folder.

    Raises:
        ValueError: No task has this id.
    """
    if not (task_id.isascii() and task_id.replace("_", "").isalnum()):
        raise ValueError(
            f"no AppWorld task is called {task_id[:200]!r}; ids look like '82e2fac_1' (scenario, "
            "number)"
        )
    return task_id


def _ids(options: AppWorldOptions, name: str) -> list[str]:
    file = options.root_folder / "data" / "datasets" / f"{name}.txt"
    if not file.is_file():
        raise ConfigError(f"AppWorld's data is not there: no {file}. {INSTALLING}")
    return file.read_text("utf-8").split()


def _instruction(options: AppWorldOptions, task_id: str) -> str:
    file = options.root_folder / "data" / "tasks" / task_id / "specs.json"
    if not file.is_file():
        raise ConfigError(f"AppWorld's data is not whole: no {file}. {INSTALLING}")
    specs: object = json.loads(file.read_text("utf-8"))
    return str(cast("dict[str, Any]", specs)["instruction"])


_PROMPT = EnvironmentPrompt(
    system=(
        "You do a person's everyday tasks in their apps by writing Python, a piece at a time, in "
        "one session that keeps its variables. Call an app by apis.APP.API(...) and print what "
        "you want to see. print(apis.api_docs.show_app_descriptions()) lists the apps, "
        "print(apis.api_docs.show_api_descriptions(app_name='APP')) the calls of one, and "
        "print(apis.api_docs.show_api_doc(app_name='APP', api_name='API')) says how a call is "
        "made. apis.supervisor has the person's accounts and passwords. When the task is done, "
        "call apis.supervisor.complete_task(), with answer=... where the task asks for one."
    ),
    instruction="What code do you run next?",
)


source = PackagedSource(
    AppWorldOptions,
    tasks,
    lambda options: options.description(
        summary="do a person's task in their apps by writing Python",
        prompt=_PROMPT,
        actions="Python code",
        # its clock and its draws are fixed, but code has a deadline in seconds
        determinism=Determinism.FIRST_OBSERVATION,
    ),
)
