"""Inside a worker: several instances of one environment, asked in batches.

An instance is made at its place's first reset, or beforehand, and reset again for each episode, as
Gymnasium foresees. One that raised an error is closed and made anew, so that an environment in an
unknown state is never played on.
"""

import logging
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import cast

import gymnasium
import msgspec

from longhaul_core.errors import (
    MAX_MESSAGE_CHARACTERS,
    EnvironmentFailure,
    EpisodeError,
    attributed_to,
    message_of,
)
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.gym.output import bound_output
from longhaul_core.gym.supervised import Channel, Kind, framed
from longhaul_envs.capabilities import Draws, Prepares
from longhaul_envs.pictures import png

__all__ = [
    "PREPARED",
    "TICK_SECONDS",
    "Call",
    "Done",
    "Hosted",
    "Verb",
    "decode_answer",
    "encode_calls",
]

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.01
"""A batch is answered after this time, though some of its calls are not begun: they are sent again.
So a call that is slow costs its neighbours no more than itself, and a deadline is of one call."""

PREPARED = b"prepared"
_CLOSE_SECONDS = 5
_MAX_CONTENT_BYTES = 8 * 2**20
"""Of one call. With `_FULL_BYTES` a message stays below the 16 MiB of a channel."""
_FULL_BYTES = 4 * 2**20
"""A batch is answered once it has so much."""


class Verb(StrEnum):
    """What is to be done in a place."""

    PING = "ping"
    """Nothing: whether the worker answers."""
    MAKE = "make"
    """Make the instance beforehand, and have it prepare its next episode."""
    RESET = "reset"
    STEP = "step"
    RENDER = "render"


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One thing to be done."""

    verb: Verb
    place: int
    text: str = ""
    """The task's id of a reset, the action of a step."""
    seed: int = 0


class Done(msgspec.Struct, frozen=True, array_like=True):
    """What came of a call."""

    content: bytes
    """JSON of an `Observation` (reset) or a `StepResult` (step), a PNG file (render; empty if
    the class does not draw its state), `PREPARED` (make, if the class prepares its episodes), or
    nothing; if it failed, the message of the error."""
    failed: bool = False
    ends: bool = False
    """Whether the episode has ended with this step."""


_CALLS = msgspec.msgpack.Decoder(tuple[Call, ...])
_DONE = msgspec.msgpack.Decoder(tuple[Done, ...])


def encode_calls(calls: list[Call]) -> bytes:
    """The message that asks a worker for `calls`."""
    return msgspec.msgpack.encode(calls)


def decode_answer(message: bytes) -> tuple[Done, ...]:
    """What came of the first calls of a message, in order; the others were not begun."""
    return _DONE.decode(message)


def prepare(argument: str) -> Callable[[Channel], None]:
    """Load the environment that `argument`, a spec as JSON, describes; for a fork server."""
    return partial(serve, spec=_loaded(argument))


def prepare_apart(argument: str) -> Callable[[Channel], None]:
    """As `prepare`, of workers that are asked over a connection that they are handed."""
    return partial(serve_apart, spec=_loaded(argument))


def serve(channel: Channel, *, spec: GymEnvironmentSpec) -> None:
    """Send the process id, then answer messages until there are no more."""
    hosted = _greeted(channel, spec)
    _answer_all(channel, hosted)
    signal.alarm(_CLOSE_SECONDS)  # its default action ends a process that hangs in close
    hosted.close()


def serve_apart(channel: Channel, *, spec: GymEnvironmentSpec) -> None:
    """Send the process id, then answer messages of the connection that `channel` brings."""
    hosted = _greeted(channel, spec)
    line = channel.receive_line()
    if line is not None:
        _answer_all(line, hosted)
        channel.receive()  # the owner decides what becomes of a worker that nobody can ask


def _loaded(argument: str) -> GymEnvironmentSpec:
    spec = GymEnvironmentSpec.from_json(argument)
    spec.load()
    return spec


def _greeted(channel: Channel, spec: GymEnvironmentSpec) -> "Hosted":
    hosted = Hosted(spec)
    channel.send(framed(Kind.ANSWER, b"%d" % os.getpid()))
    return hosted


def _answer_all(channel: Channel, hosted: "Hosted") -> None:
    output = bound_output()
    while (message := channel.receive()) is not None:
        output.begin_call()
        channel.send(framed(Kind.ANSWER, hosted.answer(message)))


class Hosted:
    """The instances of one worker, by place."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._instances: dict[int, gymnasium.Env[str, str]] = {}

    def answer(self, message: bytes) -> bytes:
        """Do the calls of a message, from the first on, until `TICK_SECONDS` are over."""
        ends_at = time.perf_counter() + TICK_SECONDS
        done: list[Done] = []
        num_bytes = 0
        for call in _CALLS.decode(message):
            done.append(self._do(call))
            num_bytes += len(done[-1].content)
            if time.perf_counter() > ends_at or num_bytes > _FULL_BYTES:
                break
        return msgspec.msgpack.encode(done)

    def close(self) -> None:
        """Close every instance."""
        for place in list(self._instances):
            self._drop(place)

    def _do(self, call: Call) -> Done:
        try:
            with attributed_to(EnvironmentFailure, f"environment.{call.verb}", exits=True):
                done = self._done(call)
                if len(done.content) > _MAX_CONTENT_BYTES:
                    raise ValueError(
                        f"the answer has {len(done.content)} bytes; the limit is "
                        f"{_MAX_CONTENT_BYTES}"
                    )
                return done
        except EpisodeError as failure:
            message = message_of(failure, limit=2 * MAX_MESSAGE_CHARACTERS)
            # Without the error's own text, which may be of any length.
            cause = failure.__cause__ or failure
            logger.warning("%s\n%s", message, "".join(traceback.format_tb(cause.__traceback__)))
            self._drop(call.place)
            return Done(message.encode(), failed=True)

    def _done(self, call: Call) -> Done:
        match call.verb:
            case Verb.PING:
                return Done(b"")
            case Verb.MAKE:
                return self._make(call)
            case Verb.RESET:
                return self._reset(call)
            case Verb.STEP:
                return self._step(call)
            case Verb.RENDER:
                return self._render(call)

    def _instance(self, place: int) -> gymnasium.Env[str, str]:
        if place not in self._instances:
            self._instances[place] = self._spec.make()
        return self._instances[place]

    def _make(self, call: Call) -> Done:
        bare = cast("object", self._instance(call.place).unwrapped)
        if not isinstance(bare, Prepares):
            return Done(b"")
        bare.prepare()
        return Done(PREPARED)

    def _reset(self, call: Call) -> Done:
        seen, info = self._instance(call.place).reset(
            seed=call.seed, options={"task_id": call.text}
        )
        return Done(msgspec.json.encode(to_observation(seen, info)))

    def _step(self, call: Call) -> Done:
        seen, reward, terminated, truncated, info = self._instances[call.place].step(call.text)
        result = to_step_result(seen, reward, terminated=terminated, truncated=truncated, info=info)
        return Done(msgspec.json.encode(result), ends=result.terminated or result.truncated)

    def _render(self, call: Call) -> Done:
        bare = cast("object", self._instances[call.place].unwrapped)
        if not isinstance(bare, Draws):
            return Done(b"")
        return Done(png(bare.render()))

    def _drop(self, place: int) -> None:
        instance = self._instances.pop(place, None)
        if instance is not None:
            with suppress(EpisodeError), attributed_to(EnvironmentFailure, "close", exits=True):
                instance.close()
