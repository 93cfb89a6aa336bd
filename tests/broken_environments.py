"""Environments that each break one rule of the contract, for the tests of the check."""

from typing import Any

import gymnasium

from longhaul_core.types import Split, Task
from longhaul_envs.task_lists import stable_seed
from longhaul_envs.text import text_space


class Sound(gymnasium.Env[str, str]):
    """Name the number you are shown. Keeps every rule; the others inherit it."""

    name = "Sound"

    def __init__(self) -> None:
        self.observation_space = self.action_space = text_space()
        self.number = 0

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        start = 100 * list(Split).index(split)
        return [self.task(split, start + n) for n in range(5)][:limit]

    def task(self, split: Split, number: int) -> Task:
        return Task(
            environment=f"broken/{self.name}-v0",
            version="1",
            data_hash="",
            task_id=str(number),
            seed=number,
            split=split,
        )

    def expert_action(self) -> str | None:
        return str(self.number)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = int(options["task_id"]) if options else int(self.np_random.integers(1000))
        return self.text(), self.info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        named = action.strip() == str(self.number)
        return self.text(), float(named), named, False, self.info(accepted=self.accepts(action))

    def text(self) -> str:
        return f"number {self.number}"

    def accepts(self, action: str) -> bool:
        return action.strip() in {str(self.number), "wait"}

    def info(self, *, accepted: bool) -> dict[str, Any]:
        return {"admissible_actions": [str(self.number), "wait"], "action_accepted": accepted}


class Hashing(Sound):
    """Shows what depends on the process."""

    name = "Hashing"

    def text(self) -> str:
        return f"number {self.number} {hash(f'{self.number}') % 1000}"


class Remembering(Sound):
    """Shows how many episodes it has played."""

    name = "Remembering"
    num_resets = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.num_resets += 1
        return super().reset(seed=seed, options=options)

    def text(self) -> str:
        return f"number {self.number} {self.num_resets % 7}"


class Leaking(Sound):
    """Has the same worlds in all splits."""

    name = "Leaking"

    def text(self) -> str:
        return f"number {self.number % 100}"

    def info(self, *, accepted: bool) -> dict[str, Any]:
        return {"admissible_actions": ["wait"], "action_accepted": accepted}


class Overlapping(Sound):
    """Lists a task in two splits."""

    name = "Overlapping"

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        return [self.task(split, 7)]


class Promising(Sound):
    """Calls an action admissible that it does not accept."""

    name = "Promising"

    def accepts(self, action: str) -> bool:
        return action.strip() == str(self.number)


class Fragile(Sound):
    """Raises at what it does not understand."""

    name = "Fragile"

    def accepts(self, action: str) -> bool:
        if action != "wait" and not action.isdecimal():
            raise KeyError(action)
        return super().accepts(action)


class Permissive(Sound):
    """Accepts whatever it is told."""

    name = "Permissive"

    def accepts(self, action: str) -> bool:
        return True


class Hopeless(Sound):
    """Has an expert that does not know."""

    name = "Hopeless"

    def expert_action(self) -> str | None:
        return "wait"


class Rolling(Sound):
    """Pays by chance."""

    name = "Rolling"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        text, _, named, truncated, info = super().step(action)
        return text, stable_seed(str(id(self))) / 2**31, named, truncated, info


class Sharing(Sound):
    """Keeps the number where all instances have it, and says that they may share a process."""

    name = "Sharing"
    episodes_per_process = 4
    last_number: int = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        shown = super().reset(seed=seed, options=options)
        Sharing.last_number = self.number
        return shown

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.number = Sharing.last_number
        return super().step(action)


class Wordless(Sound):
    """Has no text space."""

    name = "Wordless"

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(3)  # pyright: ignore[reportAttributeAccessIssue]


class Unlisted(Sound):
    """Lists nothing for testing."""

    name = "Unlisted"

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        return [] if split is Split.TEST else super().tasks(split, limit)


ALL = (
    Sound,
    Hashing,
    Remembering,
    Leaking,
    Overlapping,
    Promising,
    Fragile,
    Permissive,
    Hopeless,
    Rolling,
    Sharing,
    Wordless,
    Unlisted,
)

for broken in ALL:
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
        f"broken/{broken.name}-v0",
        entry_point=f"{broken.__module__}:{broken.__name__}",
        disable_env_checker=True,
    )
