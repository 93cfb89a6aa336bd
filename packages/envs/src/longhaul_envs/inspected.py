"""A Gymnasium class that has no source, asked in a worker process.

Its worker builds it once, says what it is, and lists its tasks. An environment with a `tasks`
method answers for itself; for any other a task is a seed, and the start that a seed gives, which is
its first observation or what `start_of` returns, decides its split: two splits may share seeds'
neighbourhoods, never a start.

The process that asks builds nothing, and an environment that crashes in its constructor takes
only the worker with it. Messages are JSON; nothing is ever pickled.
"""

import json
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from threading import Lock
from typing import NamedTuple

import gymnasium
from gymnasium.spaces import Discrete, Text
from pydantic import TypeAdapter

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.gym.convert import to_observation
from longhaul_core.types import Split, Task
from longhaul_envs.capabilities import HasPrompt, ListsTasks, TellsStarts
from longhaul_envs.pictures import has_pictures, is_observation_space
from longhaul_envs.play import TextEnvironment
from longhaul_envs.task_lists import procedural_tasks

__all__ = ["InspectedEnvironment"]

_TASKS = TypeAdapter(tuple[Task, ...])
_DESCRIBE_SECONDS = 120
"""For the imports of the environment and for its constructor."""
_END_SECONDS = 5
_ADAPTER_HINT = (
    ", as 'text/Discrete-v0' and 'picture/Discrete-v0' of longhaul_envs.adapters do for "
    "environments that draw themselves as text or as pictures"
)
_QUESTIONS = {"describe", *(split.value for split in Split)}
"""All there are; the caller keeps what was answered (`GymSource`)."""


class InspectedEnvironment:
    """A worker process that answers for an environment.

    It starts with a question, and ends when every question has been answered, or with the first
    that is answered by an error.
    """

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._worker: _Worker | None = None
        self._answered: set[str] = set()
        self._asking = Lock()

    def describe(self) -> EnvironmentDescription:
        """The description that the environment gives of itself.

        Raises:
            ConfigError: If it is not registered, its constructor raises, it does not speak text,
                or the answer takes more than 120 seconds.
        """
        return EnvironmentDescription.from_json(
            self._ask("describe", deadline_seconds=_DESCRIBE_SECONDS)
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of `split`; without a `tasks` method this costs one reset per seed looked at.

        Raises:
            ConfigError: If there is none.
        """
        return _TASKS.validate_json(self._ask(split.value, deadline_seconds=None))

    def _ask(self, question: str, *, deadline_seconds: float | None) -> str:
        name = self._spec.environment_id
        with self._asking:
            if self._worker is None:
                self._worker = self._start()
            worker = self._worker
            try:
                worker.connection.send_bytes(question.encode())
                if not worker.connection.poll(deadline_seconds):
                    raise ConfigError(
                        f"{name!r} did not describe itself within {deadline_seconds:g} s; its "
                        "import or its constructor hangs"
                    )
                kind, text = json.loads(worker.connection.recv_bytes())
            except (EOFError, BrokenPipeError, ConnectionResetError) as error:
                self._worker = None
                raise ConfigError(
                    f"the process that was to describe {name!r} ended with exit code "
                    f"{worker.end()}; see what it wrote above"
                ) from error
            except BaseException:  # an interrupt too: its next answer would be to this question
                self._worker = None
                worker.process.kill()
                worker.end()
                raise
            self._answered.add(question)
            if kind == "error" or self._answered == _QUESTIONS:
                self._worker = None
                worker.end()
        if kind == "error":
            raise ConfigError(text)
        return text

    def _start(self) -> "_Worker":
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
                    "from longhaul_envs.inspected import answer; "
                    "answer(int(sys.argv[2]), sys.argv[3])",
                    json.dumps(sys.path),
                    str(theirs.fileno()),
                    self._spec.to_json(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what an environment prints is for the log
                pass_fds=(theirs.fileno(),),
            )
        connection = Connection(ours.detach())
        return _Worker(connection, process, weakref.finalize(self, _end, connection, process))


class _Worker(NamedTuple):
    connection: Connection
    process: subprocess.Popen[bytes]
    end: Callable[[], object]
    """Ends it, when nobody asks any more at the latest; returns its exit code."""


def _end(connection: Connection, process: subprocess.Popen[bytes]) -> int:
    """Let the worker end by itself, and end it if it does not."""
    connection.close()
    try:
        return process.wait(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# In the worker


def answer(descriptor: int, spec_json: str) -> None:
    """Answer questions until the owner hangs up."""
    asked = _Asked(GymEnvironmentSpec.from_json(spec_json))
    with Connection(descriptor) as connection:
        while True:
            try:
                question = connection.recv_bytes().decode()
            except EOFError:
                break
            connection.send_bytes(json.dumps(asked.answer(question)).encode())
    asked.close()


class _Asked:
    """The one instance of the environment."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._environment: TextEnvironment | None = None
        self._starts: list[str] = []

    def answer(self, question: str) -> tuple[str, str]:
        """Whether it went well, and the answer, or what went wrong in words."""
        name = self._spec.environment_id
        try:
            if self._environment is None:
                with attributed_to(
                    EnvironmentFailure, f"making {name} with {dict(self._spec.options)}"
                ):
                    self._environment = self._spec.make()
                self._refuse_unless_text(self._environment)
            if question == "describe":
                with attributed_to(EnvironmentFailure, f"describing {name}"):
                    return "description", self._describe(self._environment).to_json()
            with attributed_to(EnvironmentFailure, f"listing tasks of {name}"):
                listed = self._tasks(self._environment, Split(question))
                return "tasks", json.dumps([asdict(task) for task in listed])
        except (ConfigError, EnvironmentFailure) as error:
            return "error", str(error)

    def close(self) -> None:
        """Close the instance, if there is one."""
        if self._environment is not None:
            self._environment.close()

    def _refuse_unless_text(self, environment: TextEnvironment) -> None:
        observations, actions = environment.observation_space, environment.action_space
        readable = {
            "observations": (observations, is_observation_space(observations)),
            "actions": (actions, isinstance(actions, Text)),
        }
        for what, (space, is_readable) in readable.items():
            if not is_readable:
                raise ConfigError(
                    f"{self._spec.environment_id!r}: its {what} are {space}, and must be "
                    "gymnasium.spaces.Text (observations with a picture: "
                    "longhaul_envs.pictures.picture_space()); wrap it in one that speaks text"
                    f"{_ADAPTER_HINT if isinstance(actions, Discrete) else ''}"
                )

    def _describe(self, environment: TextEnvironment) -> EnvironmentDescription:
        bare = environment.unwrapped
        version = self._version()
        if isinstance(bare, ListsTasks):
            version = next((task.version for task in bare.tasks(Split.TRAIN, 1)), version)
        return EnvironmentDescription(
            id=self._spec.environment_id,
            version=version,
            summary=(type(bare).__doc__ or "").strip().partition("\n")[0],
            prompt=bare.prompt if isinstance(bare, HasPrompt) else None,
            episodes_per_process=self._spec.episodes_per_process(),
            determinism=Determinism(getattr(bare, "determinism", Determinism.EXACT)),
            shows_pictures=has_pictures(environment.observation_space),
        )

    def _tasks(self, environment: TextEnvironment, split: Split) -> Sequence[Task]:
        bare = environment.unwrapped
        if isinstance(bare, ListsTasks):
            return bare.tasks(split)
        found = procedural_tasks(
            split,
            limit=None,
            content_of=self._start_of(environment),
            task_of=lambda seed: replace(self._task(seed), split=split),
        )
        if not found:
            raise ConfigError(
                f"{self._spec.environment_id!r} has no task for split {split.value!r}: "
                f"{len(self._starts)} seeds give {len(set(self._starts))} different first "
                "observations; give the environment a `tasks` method"
            )
        return found

    def _start_of(self, environment: TextEnvironment) -> Callable[[int], str]:
        bare = environment.unwrapped

        def shown(seed: int) -> str:
            observation = to_observation(*environment.reset(seed=seed))
            return replace(observation, anchor_state=None).anchor  # text, and pictures' hashes

        told = bare.start_of if isinstance(bare, TellsStarts) else shown

        def start_of(seed: int) -> str:
            while len(self._starts) <= seed:
                self._starts.append(told(len(self._starts)))
            return self._starts[seed]

        return start_of

    def _task(self, seed: int) -> Task:
        return Task(
            environment=self._spec.environment_id,
            version=self._version(),
            data_hash="",
            task_id=f"seed/{seed:05}",
            seed=seed,
            split=Split.TRAIN,
        )

    def _version(self) -> str:
        """Gymnasium's version of the id, and the options, every one of which may be a rule."""
        registered_id = self._spec.environment_id.rpartition(":")[2]  # Gymnasium's `module:id`
        version = str(gymnasium.spec(registered_id).version or 0)
        if self._spec.options:
            version += f"+{json.dumps(dict(self._spec.options), sort_keys=True)}"
        return version
