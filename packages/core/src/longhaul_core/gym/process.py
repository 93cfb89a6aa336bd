"""An environment in a worker process: the safe way to play one that is not trusted."""

from typing import Protocol

from longhaul_core.environment import StepResult
from longhaul_core.gym.channel import Kind, Message
from longhaul_core.gym.fork_client import ForkedWorker
from longhaul_core.gym.worker import OBSERVATION, RESET_REQUEST, STEP_RESULT, ResetRequest
from longhaul_core.types import Observation, Task

__all__ = ["ProcessEnvironment", "WorkerLender"]


class WorkerLender(Protocol):
    """Lends worker processes; `ProcessPool` does."""

    async def acquire(self) -> ForkedWorker:
        """A worker for one episode, as soon as there is one."""
        ...

    def release(self, worker: ForkedWorker, *, reusable: bool) -> None:
        """Take it back."""
        ...


class ProcessEnvironment:
    """One episode, played by a borrowed worker process.

    A call that is cancelled, because its deadline has passed or the run ends, costs the
    process: it is killed in `close`, with every process that it started in its group.
    """

    def __init__(self, lender: WorkerLender) -> None:
        self._lender = lender
        self._worker: ForkedWorker | None = None
        self._reusable = True

    async def open(self) -> None:
        """Wait for a worker process."""
        self._worker = await self._lender.acquire()

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        request = ResetRequest(task_id=task.task_id, seed=task.seed)
        text = RESET_REQUEST.dump_json(request).decode()
        return OBSERVATION.validate_json(await self._ask(Message(Kind.RESET, text)))

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        return STEP_RESULT.validate_json(await self._ask(Message(Kind.STEP, action)))

    async def close(self) -> None:
        """Give the worker back."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._lender.release(worker, reusable=self._reusable)

    async def _ask(self, request: Message) -> str:
        if self._worker is None:
            raise RuntimeError("the environment is not open")
        self._reusable = False  # until the answer is here in full
        answer = await self._worker.ask(request)
        self._reusable = True
        return answer
