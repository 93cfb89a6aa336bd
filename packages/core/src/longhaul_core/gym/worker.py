"""A worker process: plays episodes on Gymnasium environments, several at once where they allow it.

An environment is made at the first reset of its place and reset again for each episode, as
Gymnasium foresees. After an error the owner starts no further episode in the process, so an
environment in an unknown state is never played on.
"""

import logging
import signal
import struct
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import gymnasium
from pydantic import TypeAdapter

from longhaul_core.environment import StepResult
from longhaul_core.errors import (
    MAX_MESSAGE_CHARACTERS,
    EnvironmentFailure,
    EpisodeError,
    attributed_to,
    message_of,
)
from longhaul_core.gym.convert import expert_action, to_observation, to_step_result
from longhaul_core.gym.output import bound_output
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.gym.supervised import Channel, Kind, framed
from longhaul_core.types import Observation

__all__ = [
    "EXPERT_ACTION",
    "OBSERVATION",
    "RESET_REQUEST",
    "STEP_RESULT",
    "Call",
    "ResetRequest",
    "prepare",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """The fields of a task that are sent to an environment."""

    task_id: str
    seed: int


RESET_REQUEST = TypeAdapter(ResetRequest)
OBSERVATION = TypeAdapter(Observation)
STEP_RESULT = TypeAdapter(StepResult)
EXPERT_ACTION: TypeAdapter[str | None] = TypeAdapter(str | None)

_CLOSE_SECONDS = 5


class Call:
    """How a request begins: what is called, and in which of the process's places."""

    RESET = b"R"
    """A `ResetRequest` as JSON follows."""
    STEP = b"S"
    """The action as UTF-8 text follows."""
    EXPERT = b"E"
    """Nothing follows; the answer is an `EXPERT_ACTION` as JSON."""
    HEADER = struct.Struct("!cH")


def prepare(argument: str) -> Callable[[Channel], None]:
    """Load the environment that `argument`, a spec as JSON, describes; for a fork server."""
    spec = GymEnvironmentSpec.from_json(argument)
    episodes = 1
    try:
        with attributed_to(EnvironmentFailure, "importing the environment", exits=True):
            episodes = spec.episodes_per_process()
    except EpisodeError as failure:
        # Each worker will meet the same error at its first reset and answer with it.
        logger.warning("%s", message_of(failure))
    return partial(serve, spec=spec, episodes_per_process=episodes)


def serve(channel: Channel, *, spec: GymEnvironmentSpec, episodes_per_process: int) -> None:
    """Say how many episodes may be played at once, then answer requests until there are no more."""
    worker, output = _Worker(spec), bound_output()
    channel.send(framed(Kind.ANSWER, b"%d" % episodes_per_process))
    while (request := channel.receive()) is not None:
        output.begin_call()
        channel.send(worker.answer(request))
    signal.alarm(_CLOSE_SECONDS)  # its default action ends a process that hangs in close
    worker.close()


class _Worker:
    """The environments of one process."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._environments: dict[int, gymnasium.Env[str, str]] = {}
        """By place."""
        self._calls = {
            Call.RESET: ("reset", self._reset),
            Call.STEP: ("step", self._step),
            Call.EXPERT: ("expert_action", self._expert_action),
        }

    def answer(self, request: bytes) -> bytes:
        """Do what is asked; what came of it as a message, be it an error of the environment."""
        call, place = Call.HEADER.unpack_from(request)
        content = request[Call.HEADER.size :]
        name, does = self._calls[call]
        try:
            with attributed_to(EnvironmentFailure, f"environment.{name}", exits=True):
                return framed(Kind.ANSWER, does(place, content))
        except EpisodeError as failure:
            message = message_of(failure, limit=2 * MAX_MESSAGE_CHARACTERS)
            logger.warning("%s\n%s", message, _places(failure.__cause__ or failure))
            return framed(Kind.ERROR, message.encode())

    def close(self) -> None:
        """Close the environments that were made."""
        for environment in self._environments.values():
            with suppress(EpisodeError), attributed_to(EnvironmentFailure, "close", exits=True):
                environment.close()

    def _reset(self, place: int, content: bytes) -> bytes:
        if place not in self._environments:
            self._environments[place] = self._spec.make()
        asked = RESET_REQUEST.validate_json(content)
        observation, info = self._environments[place].reset(
            seed=asked.seed, options={"task_id": asked.task_id}
        )
        return OBSERVATION.dump_json(to_observation(observation, info))

    def _begun(self, place: int) -> gymnasium.Env[str, str]:
        if place not in self._environments:
            raise RuntimeError("it was not reset before")
        return self._environments[place]

    def _expert_action(self, place: int, content: bytes) -> bytes:
        return EXPERT_ACTION.dump_json(expert_action(self._begun(place)))

    def _step(self, place: int, content: bytes) -> bytes:
        text, reward, terminated, truncated, info = self._begun(place).step(content.decode())
        return STEP_RESULT.dump_json(
            to_step_result(text, reward, terminated=terminated, truncated=truncated, info=info)
        )


def _places(error: BaseException) -> str:
    """Where the error came from, without its text, which may be of any length."""
    return "".join(traceback.format_tb(error.__traceback__))
