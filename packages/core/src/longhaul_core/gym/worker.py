"""A worker process: plays one episode after the other on one Gymnasium environment.

The environment is made at the first reset and reset again for each episode, as
Gymnasium foresees. After an error the owner discards the whole process, so an
environment in an unknown state is never played on.
"""

import logging
import signal
import socket
import traceback
from contextlib import suppress
from dataclasses import dataclass

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
from longhaul_core.gym.channel import ChannelClosed, Kind, Message, packed, receive, send
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.types import Observation

__all__ = ["OBSERVATION", "RESET_REQUEST", "STEP_RESULT", "ResetRequest", "serve"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """What of a task an environment is told."""

    task_id: str
    seed: int


RESET_REQUEST = TypeAdapter(ResetRequest)
OBSERVATION = TypeAdapter(Observation)
STEP_RESULT = TypeAdapter(StepResult)

_CLOSE_SECONDS = 5


def serve(connection: socket.socket, spec: GymEnvironmentSpec) -> None:
    """Answer requests until the owner hangs up."""
    worker = _Worker(spec)
    send(connection, Message(Kind.READY, ""))
    while True:
        try:
            worker.answer(receive(connection), connection)
        except (ChannelClosed, BrokenPipeError, ConnectionResetError):
            break
    signal.alarm(_CLOSE_SECONDS)  # its default action ends a process that hangs in close
    worker.close()


class _Worker:
    """The environment of one process."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._environment: gymnasium.Env[str, str] | None = None

    def answer(self, request: Message, connection: socket.socket) -> None:
        """Do what is asked, and send what came of it; an error of the environment is that too."""
        resets = request.kind is Kind.RESET
        call = f"environment.{'reset' if resets else 'step'}"
        try:
            with attributed_to(EnvironmentFailure, call, exits=True):
                text = self._reset(request.text) if resets else self._step(request.text)
                answer = packed(Message(Kind.ANSWER, text))
        except EpisodeError as failure:
            message = message_of(failure, limit=2 * MAX_MESSAGE_CHARACTERS)
            logger.warning("%s\n%s", message, _places(failure.__cause__ or failure))
            answer = packed(Message(Kind.ERROR, message))
        connection.sendall(answer)

    def close(self) -> None:
        """Close the environment, if one was made."""
        if self._environment is not None:
            with suppress(EpisodeError), attributed_to(EnvironmentFailure, "close", exits=True):
                self._environment.close()

    def _reset(self, text: str) -> str:
        if self._environment is None:
            self._environment = self._spec.make()
        asked = RESET_REQUEST.validate_json(text)
        observation, info = self._environment.reset(
            seed=asked.seed, options={"task_id": asked.task_id}
        )
        return OBSERVATION.dump_json(to_observation(observation, info)).decode()

    def _step(self, action: str) -> str:
        if self._environment is None:
            raise RuntimeError("step before reset")
        observation, reward, terminated, truncated, info = self._environment.step(action)
        result = to_step_result(
            observation, reward, terminated=terminated, truncated=truncated, info=info
        )
        return STEP_RESULT.dump_json(result).decode()


def _places(error: BaseException) -> str:
    """Where the error came from, without its text, which may be of any length."""
    return "".join(traceback.format_tb(error.__traceback__))
