"""Serves the gateway on a port of this process."""

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute

from longhaul_core.http_server import HttpServer
from longhaul_core.rollout.responder import Responder
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.serving import address_of, bound_socket
from longhaul_core.types import Task
from longhaul_trainer.gateway.app import Lobby, create_app
from longhaul_trainer.gateway.authentication import EpisodeAccess
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.settings import GatewaySettings
from longhaul_trainer.gateway.upstream import Upstream

__all__ = ["Gateway"]


class Gateway:
    """An HTTP server for programs that play episodes.

    It lives on the event loop that starts it, where sessions and policy live too: a request needs
    no way from one thread to another.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: GatewaySettings | None = None,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        """A gateway that is not started.

        Args:
            host: Where to listen; the loopback unless programs run on other machines.
            port: 0 is any free one.
            settings: Limits of the HTTP side; None for the defaults.
            routes: Beside those of episodes; see `create_app`.
        """
        self._host = host
        self._port = port
        self._settings = settings or GatewaySettings()
        self._routes = routes
        self._lobby = Lobby()
        self._address: str | None = None
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            MachineError: The address cannot be listened on.
        """
        listener = bound_socket(self._host, self._port)
        self._address = address_of(listener)
        self._server = HttpServer(
            create_app(self._lobby, self._settings, routes=self._routes),
            listener,
            header_seconds=self._settings.header_seconds,
            stop_seconds=self._settings.stop_seconds,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            date_header=False,
        )
        self._server.start()

    @property
    def address(self) -> str:
        """`http://HOST:PORT`.

        Raises:
            RuntimeError: It is not started.
        """
        if self._address is None:
            raise RuntimeError("the gateway is not started")
        return self._address

    def open(
        self,
        session: EpisodeSession,
        *,
        models: Mapping[str, Responder | Upstream],
        rules: CallRules,
        task: Task,
    ) -> OpenEpisode:
        """Let a program play an episode.

        Args:
            session: Keeps the record; its methods are called on this event loop.
            models: Who answers, by the names of a request's `model`. The first is the policy, which
                `auto` stands for too; under further names it is the policy as well.
            rules: What the calls may ask for.
            task: What `GET /longhaul/task` answers with.
        """
        episode = OpenEpisode(
            session,
            access=EpisodeAccess(address=self.address),
            models=models,
            rules=rules,
            task=task,
            max_kept_replies=self._settings.max_kept_replies,
        )
        self._lobby.add(episode)
        return episode

    async def stop(self) -> None:
        """Close every episode, and stop listening; nothing is left."""
        for episode in self._lobby.episodes:
            await episode.close(cause="the gateway was stopped")
        if self._server is not None:
            await self._server.stop()
            self._server = None
