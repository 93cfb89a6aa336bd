"""A server made with the package `openenv`: its environments are held as its users hold them.

python openenv_server.py text     # an action of one field, tasks of its own
python openenv_server.py fields   # an action of two fields, no tasks
"""

from typing import Any, cast

from openenv.core.env_server import http_server
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from starlette.applications import Starlette
from starlette.routing import Mount

from running_servers import serve


class Guess(Action):
    word: str


class Shown(Observation):
    text: str


class Words(Environment[Guess, Shown, State]):
    """Guess a word, `word 3` in the task of index 3; `crash` raises."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._word = ""
        self._num_steps = 0

    def list_splits(self) -> list[str]:
        return ["train", "test"]

    def num_tasks(self, split: str) -> int:
        return {"train": 20, "test": 5}[split]

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "none",
        index: int = 0,
        **kwargs: object,
    ) -> Shown:
        self._word = f"word {index}"
        self._num_steps = 0
        return Shown(text=f"Guess word {index} of {split}, seed {seed}.")

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: object) -> Shown:
        self._num_steps += 1
        if action.word == "crash":
            raise RuntimeError("the word machine is on fire")
        if action.word == self._word:
            return Shown(text=f"Right, in {self._num_steps}.", reward=1.0, done=True)
        if action.word == "give up":
            return Shown(text="Given up.", reward=0.0, done=True)
        return Shown(text=f"Wrong: {len(action.word)} letters.", reward=None)

    @property
    def state(self) -> State:
        return State(step_count=self._num_steps)


class Move(Action):
    direction: str
    steps: int = 1


class Place(Observation):
    x: int
    facing: str


class Line(Environment[Move, Place, State]):
    """Walk right to 3; the seed is where one begins, below 0."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._x = 0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: object
    ) -> Place:
        self._x = -(seed or 0) % 5
        return Place(x=self._x, facing="right")

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: object) -> Place:
        self._x += action.steps if action.direction == "right" else -action.steps
        done = self._x >= 3
        return Place(x=self._x, facing=action.direction, reward=0.5 * done, done=done)

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    create = cast("Any", http_server.create_fastapi_app)  # pyright: ignore[reportUnknownMemberType]
    words = create(Words, Guess, Shown, max_concurrent_envs=2, env_name="words")
    line = create(Line, Move, Place, max_concurrent_envs=2)
    serve(Starlette(routes=[Mount("/words", words), Mount("/line", line)]))
