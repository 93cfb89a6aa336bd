"""An environment that a server plays, as a source: it describes, lists and makes like any other.

What it describes and lists is asked once, and must be what the run means: same options, and same
version where the environment is installed here too.
"""

import asyncio
import copy
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from http.client import HTTPException
from typing import TypeVar

import msgspec

from longhaul_core.discovery import installed_environments, installed_source
from longhaul_core.environment import Environment, EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.remote.client import ServerClient
from longhaul_envs.remote.environment import RemoteEnvironment
from longhaul_envs.server.protocol import PROTOCOL, Environments, Health, TaskPage
from longhaul_envs.server.settings import TOKEN_VARIABLE

__all__ = ["RemoteSource", "remote_source", "served_environments"]

_ASK_SECONDS = 60.0
"""For a description or a page of tasks, which a server may have to draw first."""
_PAGE = 1000

Answer = TypeVar("Answer")


def remote_source(
    address: str, environment_id: str, options: Mapping[str, object]
) -> "RemoteSource":
    """The source of an environment on a server; equal arguments give the same one.

    The token is read from the environment variable `LONGHAUL_ENV_TOKEN`.
    """
    return _source(address, environment_id, json.dumps(options, sort_keys=True))


@cache
def _source(address: str, environment_id: str, options_json: str) -> "RemoteSource":
    return RemoteSource(
        address, environment_id, json.loads(options_json), token=os.environ.get(TOKEN_VARIABLE, "")
    )


def served_environments(address: str) -> dict[str, Mapping[str, object]]:
    """Id of every environment that a server plays, to the options it was started with.

    The token is read from the environment variable `LONGHAUL_ENV_TOKEN`.

    Raises:
        ConfigError: If the server cannot be reached, refuses the token, or speaks another protocol.
    """
    asked = RemoteSource(address, "", {}, token=os.environ.get(TOKEN_VARIABLE, ""))
    return {one.description.id: one.options for one in asked.served().environments}


class RemoteSource:
    """An environment on a server. Nothing is asked before a method is called."""

    def __init__(
        self,
        address: str,
        environment_id: str,
        options: Mapping[str, object],
        *,
        token: str = "",
        client_name: str = "",
    ) -> None:
        """Describe it.

        Args:
            address: E.g. `http://127.0.0.1:8300`.
            environment_id: Its full id.
            options: That it must have been started with.
            token: Of the server; empty if it needs none.
            client_name: What the server counts quotas by, besides the token.
        """
        self._address = address.rstrip("/")
        self._id = environment_id
        self._options = dict(options)
        self._token = token
        self._client_name = client_name
        self._description: EnvironmentDescription | None = None
        self._tasks: dict[Split, tuple[Task, ...]] = {}
        self._clients: dict[asyncio.AbstractEventLoop, ServerClient] = {}
        self._num_free: asyncio.Semaphore | None = None

    def served(self) -> Environments:
        """All that the server plays.

        Raises:
            ConfigError: If it cannot be reached, refuses the token, or speaks another protocol.
        """
        return self._ask(f"/v{PROTOCOL}/environments", Environments)

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`.

        Raises:
            ConfigError: If the server cannot be reached, refuses the token, speaks another
                protocol, does not serve the environment, or serves it under other options or,
                where it is installed here, in another version.
        """
        if self._description is None:
            fitting = {one.description.id: one for one in self.served().environments}
            if self._id not in fitting:
                raise ConfigError(
                    f"{self._address} does not serve {self._id!r}; it serves {', '.join(fitting)}"
                )
            found = fitting[self._id]
            if found.options != self._options:
                raise ConfigError(
                    f"{self._address} serves {self._id} with the options {found.options}, and the "
                    f"run has {self._options}; start the server with the run's (--option), or give "
                    "the run the server's"
                )
            self._refuse_other_version(found.description)
            self._description = found.description
        return self._description

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`.

        Raises:
            ConfigError: As `describe`, or if the server lists no task.
        """
        if split not in self._tasks:
            self.describe()
            found: list[Task] = []
            total = 1
            while len(found) < total:
                query = urllib.parse.urlencode(
                    {
                        "environment": self._id,
                        "split": split.value,
                        "offset": len(found),
                        "limit": _PAGE,
                    }
                )
                page = self._ask(f"/v{PROTOCOL}/tasks?{query}", TaskPage)
                found += page.tasks
                total = page.total
                if not page.tasks:
                    raise ConfigError(
                        f"{self._address} lists {len(found)} of {total} tasks of {self._id} for "
                        f"split {split.value!r}"
                    )
            self._tasks[split] = tuple(found)
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        return RemoteEnvironment(self._client, self._id, num_free=self._num_free)

    def limited(self, num_sessions: int) -> "RemoteSource":
        """The same, with at most `num_sessions` sessions at once, at least 1; in one event loop.

        Further ones wait in `Environment.open`.

        Raises:
            ConfigError: If `num_sessions` is out of range.
        """
        if num_sessions < 1:
            raise ConfigError(f"num_sessions must be at least 1, got {num_sessions}")
        limited = copy.copy(self)
        limited._num_free = asyncio.Semaphore(num_sessions)
        return limited

    async def _client(self) -> ServerClient:
        """The connections of the running event loop, which are there while episodes are open."""
        loop = asyncio.get_running_loop()
        description = self._description or await asyncio.to_thread(self.describe)
        client = self._clients.get(loop)
        if client is None or client.closed:
            for other in [one for one in self._clients if one.is_closed()]:
                del self._clients[other]
            client = self._clients[loop] = ServerClient(
                self._address,
                token=self._token,
                name=self._client_name,
                batches=description.episodes_per_process > 1,
            )
        return client

    def _refuse_other_version(self, found: EnvironmentDescription) -> None:
        if self._id not in installed_environments():
            return
        try:
            here = installed_source(self._id, self._options).describe()
        except ConfigError:  # what it needs is on the server alone, which is why there is one
            return
        if here.version != found.version:
            raise ConfigError(
                f"{self._address} serves {self._id} in version {found.version!r}, and version "
                f"{here.version!r} is installed here; install the same release on both"
            )

    def _ask(self, path: str, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(self._get(path), type=kind)
        except urllib.error.HTTPError as error:
            raise ConfigError(self._refusal(error)) from error
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._address} is no environment server, or one of another release: {error}"
            ) from error
        except (OSError, HTTPException) as error:
            raise ConfigError(
                f"the environment server {self._address} cannot be reached: {error}; start it with "
                "`trainer serve-env`, or correct the address"
            ) from error

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        if error.code == 401:
            given = "was refused" if self._token else "is required"
            return (
                f"{self._address}: a token {given}; put the server's into the environment variable "
                f"{TOKEN_VARIABLE}"
            )
        protocols = self._protocols()
        if protocols is not None and PROTOCOL not in protocols:
            return (
                f"{self._address} speaks the protocol in version {', '.join(map(str, protocols))}, "
                f"and this client in version {PROTOCOL}; install the same release on both"
            )
        return f"{self._address} answers {error.code} {error.reason}: {error.read(500)!r}"

    def _protocols(self) -> tuple[int, ...] | None:
        try:
            return msgspec.json.decode(self._get("/health"), type=Health).protocols
        except (OSError, HTTPException, msgspec.MsgspecError):
            return None

    def _get(self, path: str) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(f"{self._address}{path}", headers=headers)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=_ASK_SECONDS) as answer:
            return answer.read()
