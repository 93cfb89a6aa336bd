"""One episode on a server: a session, opened, reset, stepped by number and closed."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from longhaul_core.environment import StepResult
from longhaul_core.types import Observation, Task
from longhaul_envs.remote.client import ServerClient

__all__ = ["RemoteEnvironment"]


class RemoteEnvironment:
    """One episode. Made by `RemoteSource`.

    What cannot reach the server is tried again, and acts once all the same, since each step has a
    number. What went wrong in the environment is not.
    """

    def __init__(
        self,
        client: Callable[[], Awaitable[ServerClient]],
        environment_id: str,
        *,
        num_free: asyncio.Semaphore | None,
    ) -> None:
        self._find_client = client
        self._environment_id = environment_id
        self._num_free = num_free
        self._client: ServerClient | None = None
        self._idempotency_key = secrets.token_urlsafe(18)
        self._session_id = ""
        self._number = 0

    async def open(self) -> None:
        """Wait for a free place on the server."""
        if self._num_free is not None:
            await self._num_free.acquire()
        try:
            client = await self._find_client()
        except BaseException:
            if self._num_free is not None:
                self._num_free.release()
            raise
        self._client = client
        client.enter()
        self._session_id = await self._client.create(
            self._environment_id, idempotency_key=self._idempotency_key
        )

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        return await self._opened().reset(self._session_id, task)

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        self._number += 1
        return await self._opened().step(self._session_id, number=self._number, action=action)

    async def close(self) -> None:
        """Give the session back. One that the server does not hear of ends with its lease."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            await client.close_session(
                self._session_id, self._environment_id, idempotency_key=self._idempotency_key
            )
        finally:
            if self._num_free is not None:
                self._num_free.release()
            await client.leave()

    def _opened(self) -> ServerClient:
        if self._client is None:
            raise RuntimeError("the environment is not open")
        return self._client
