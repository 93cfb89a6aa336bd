"""Where a learner's process and an engine's on the same machine meet to hand weights over.

verl names the socket so that anybody can guess it, in `/tmp`, and the engine unpickles what it is
sent there. Ours is in a folder that no other user can enter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

from longhaul_trainer.verl.private_folder import private_folder


def private_handle(handle: str) -> str:
    """A socket's address as verl names it, e.g. `ipc:///tmp/name.sock`, moved into our folder."""
    return f"ipc://{private_folder() / Path(handle).name}"


class PrivateServerAdapter(ServerAdapter):
    """verl's way from a learner's process to the engine."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  verl's
        super().__init__(*arguments, **options)
        self.zmq_handle = private_handle(self.zmq_handle)


class PrivateWorkerExtension(vLLMColocateWorkerExtension):
    """verl's part of a vLLM worker."""

    def _get_zmq_handle(self) -> str:
        return private_handle(super()._get_zmq_handle())
