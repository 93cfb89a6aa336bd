"""What an agent loop needs to have its episodes played by runners."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from longhaul_core.rollout import EpisodeSpec
from longhaul_core.store.records import Phase, episode_id
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.settings import GatewaySettings
from longhaul_trainer.play.runners.lease_log import Commit, LeaseLog
from longhaul_trainer.play.runners.leases import Leases
from longhaul_trainer.play.runners.remote import RemoteProgram
from longhaul_trainer.play.runners.routes import runner_routes
from longhaul_trainer.play.runners.token import token_of

__all__ = ["Addresses", "Runners"]

logger = logging.getLogger(__name__)


class Addresses:
    """The gateways of a run, by small files in the run's folder: a runner needs to know one."""

    def __init__(self, folder: Path, agent_loop: AgentLoop) -> None:
        """Those of a run.

        Args:
            folder: Of the run; all of its nodes see it.
            agent_loop: Which of them this process is.
        """
        self._folder = folder / "gateways"
        self._agent_loop = agent_loop

    def write(self, address: str) -> None:
        """Say where this process listens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        host = urlsplit(address).hostname or ""
        port = urlsplit(address).port
        if host in ("0.0.0.0", "::"):
            host = _own_address()
        shown = f"[{host}]" if ":" in host else host
        content = {"machine": socket.gethostname(), "address": f"http://{shown}:{port}"}
        path = self._path(self._agent_loop.index)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content), encoding="utf-8")
        new.replace(path)

    def read(self, reached: str) -> tuple[str, ...]:
        """All that listen, this process first.

        Args:
            reached: The address at which a runner reached this process. Gateways of the same
                machine have the same host.
        """
        found = [reached]
        for index in range(self._agent_loop.of):
            path = self._path(index)
            if index == self._agent_loop.index or not path.is_file():
                continue  # one that starts later is found when a runner asks again
            content = cast("dict[str, str]", json.loads(path.read_text(encoding="utf-8")))
            address = urlsplit(content["address"])
            if content["machine"] == socket.gethostname():
                address = address._replace(netloc=f"{_host(reached)}:{address.port}")
            found.append(address.geturl())
        return tuple(found)

    def _path(self, index: int) -> Path:
        return self._folder / f"{index}.json"


class Runners:
    """The leases of an agent loop: its gateway answers programs and runners at one address."""

    def __init__(
        self,
        run: RunConfig,
        *,
        run_id: str,
        attempt: int,
        commit: Commit,
        folder: Path,
        agent_loop: AgentLoop,
    ) -> None:
        """Describe them; nothing listens yet.

        Args:
            run: The run, whose agent is `remote`.
            run_id: Of the run.
            attempt: Of the run.
            commit: See `LeaseLog`.
            folder: Of the run.
            agent_loop: Which of the run's agent loops this process is.

        Raises:
            ConfigError: See `token_of`.
        """
        agent = run.agent
        self._run_id = run_id
        self._attempt = attempt
        self._deadline_seconds = agent.deadline_seconds
        self._log = LeaseLog(commit, run_id=run_id, attempt=attempt)
        self._leases = Leases(lost_seconds=agent.lost_seconds, on_change=self._log.note)
        self._addresses = Addresses(folder, agent_loop)
        self.gateway = Gateway(
            host=agent.host,
            port=agent.port + agent_loop.index if agent.port else 0,
            settings=GatewaySettings(allowed_hosts=agent.allowed_hosts),
            routes=runner_routes(self._leases, token=token_of(run), gateways=self._addresses.read),
        )
        """Where programs and runners come; `start` starts it."""

    async def start(self) -> None:
        """Listen.

        Raises:
            MachineError: The address cannot be listened on.
        """
        await self.gateway.start()
        self._addresses.write(self.gateway.address)
        self._log.start(self._leases)
        logger.info("runners may connect to %s", self.gateway.address)

    def program(self, spec: EpisodeSpec, *, phase: Phase, training_step: int) -> RemoteProgram:
        """What plays one try of an episode."""
        name = episode_id(
            self._run_id,
            attempt=self._attempt,
            phase=phase,
            training_step=training_step,
            group_index=spec.group_index,
            sample_index=spec.sample_index,
            retry=spec.retry,
        )
        return RemoteProgram(
            leases=self._leases,
            gateway=self.gateway.address,
            deadline_seconds=self._deadline_seconds,
            name=name,
        )

    async def stop(self) -> None:
        """Listen no more; episodes that are played have ended."""
        await self.gateway.stop()
        await self._log.close()


def _host(address: str) -> str:
    host = urlsplit(address).hostname or ""
    return f"[{host}]" if ":" in host else host


def _own_address() -> str:
    """The address by which other machines reach this one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of nobody (RFC 5737)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
