"""An environment for tests of the server: exact, logged, and broken on demand.

Its state is a chain of hashes, so that a step which is left out, repeated or made in another
order shows in every later observation. Each action is written to a log as it acts, in the folder
that the option `log` names: one file an episode, one line an action.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from longhaul_core.types import Split, Task
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.server.hosting import TICK_SECONDS
from longhaul_envs.text import text_space

STEPS = 12
"""Of an episode, after which it is solved."""

HELD: list[bytearray] = []


class Chain(gymnasium.Env[str, str]):
    """Say anything; `hang`, `crash`, `exit`, `grow`, `slow`, `print` and `raise` do what they say.

    `pause` takes longer than a worker collects answers for; `boast` and `end twice` bring what no
    step may.
    """

    episodes_per_process = 8
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  Gymnasium's
    render_mode: str | None = "rgb_array"

    def __init__(self, log: str = "") -> None:
        self.observation_space = self.action_space = text_space()
        self.log = Path(log) if log else None
        self.state = ""
        self.num_steps = 0
        self.task_id = ""

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        first = 10_000 * list(Split).index(split)
        return [
            Task(
                environment=f"served/{type(self).__name__}-v0",
                version="1",
                data_hash="",
                task_id=f"chain/{first + n}",
                seed=first + n,
                split=split,
            )
            for n in range(2000 if limit is None else limit)
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.task_id = str((options or {}).get("task_id", "chain/0"))
        if not self.knows(self.task_id):
            raise ValueError(f"no task is called {self.task_id!r}")
        self.state = hashlib.sha256(f"{self.task_id} {seed}".encode()).hexdigest()
        self.num_steps = 0
        self.write("reset")
        return self.state, self.info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        self.write(action)
        misbehave(action)
        self.state = hashlib.sha256(f"{self.state} {action}".encode()).hexdigest()
        ended = self.num_steps == STEPS or action == "end twice"
        reward = 1e200 if action == "boast" else self.num_steps / 8
        return self.state, reward, ended, action == "end twice", self.info()

    def knows(self, task_id: str) -> bool:
        return task_id.startswith("chain/")

    def render(self) -> NDArray[np.uint8]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return np.full((2, 2, 3), self.num_steps, dtype=np.uint8)

    def info(self) -> dict[str, Any]:
        return {
            "admissible_actions": [f"say {self.state[:4]}", "wait"],
            "anchor_state": f"{self.task_id} {self.num_steps}",
        }

    def write(self, action: str) -> None:
        if self.log is not None:
            name = self.task_id.replace("/", "_")
            with (self.log / name).open("a", encoding="utf-8") as file:
                file.write(f"{self.num_steps} {action[:100]!r}\n")


class Alone(Chain):
    """The same, one episode a process."""

    episodes_per_process = 1


class Drawn(Chain):
    """The same, with a picture in each observation."""

    def __init__(self, log: str = "") -> None:
        super().__init__(log)
        self.observation_space = picture_space()  # pyright: ignore[reportAttributeAccessIssue]

    def reset(self, **arguments: Any) -> Any:  # noqa: ANN401
        text, info = super().reset(**arguments)
        return {"text": text, "picture": png(self.render())}, info

    def step(self, action: str) -> Any:  # noqa: ANN401
        text, *rest = super().step(action)
        return {"text": text, "picture": png(self.render())}, *rest


class Willing(Chain):
    """The same, with any task."""

    def knows(self, task_id: str) -> bool:
        return True


class Prepared(Chain):
    """The same, in an instance that prepares its next episode; says what it was asked, in order."""

    asked: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.asked.append("make")

    def prepare(self) -> None:
        self.asked.append("prepare")

    def reset(self, **arguments: Any) -> Any:  # noqa: ANN401
        self.asked.append("reset")
        return super().reset(**arguments)

    def step(self, action: str) -> Any:  # noqa: ANN401
        self.asked.append(action)
        return super().step(action)


class Unbuildable(Chain):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("its data is missing")


class Shelves(Chain):
    """The same, with more actions than a person looks through."""

    def info(self) -> dict[str, Any]:
        books = [f"take book {n} from shelf {shelf}" for shelf in "abcd" for n in range(20)]
        return super().info() | {"admissible_actions": books}


def misbehave(action: str) -> None:
    match action:
        case "hang":
            time.sleep(3600)
        case "slow":
            time.sleep(1.5)
        case "pause":
            time.sleep(2 * TICK_SECONDS)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            raise SystemExit(3)
        case "raise":
            raise RuntimeError("as it was asked to")
        case "print":
            sys.stdout.write("noise\n" * 100_000)
        case "grow":
            HELD.append(bytearray(os.urandom(1)) * (450 * 2**20))
        case _:
            pass


KINDS = (Chain, Alone, Drawn, Willing, Prepared, Shelves, Unbuildable)

for kind in KINDS:
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
        id=f"served/{kind.__name__}-v0", entry_point=f"{__name__}:{kind.__name__}"
    )
