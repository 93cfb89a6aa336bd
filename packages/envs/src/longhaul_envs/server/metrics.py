"""What a server counts, in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from longhaul_envs.server.errors import Cause
from longhaul_envs.server.fleet import Fleet
from longhaul_envs.server.hosting import Verb

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server, in a registry of its own. A `TableObserver`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Histogram(
            "longhaul_call_seconds",
            "Calls of environments, from their arrival to the answer.",
            ["environment", "call"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._calls_of: dict[tuple[str, Verb], Histogram] = {}
        self._closed = Counter(
            "longhaul_sessions_closed",
            "Sessions that are no more, by what ended them.",
            ["environment", "cause"],
            registry=self._registry,
        )
        self._replaced = Counter(
            "longhaul_workers_replaced",
            "Workers that were lost and replaced, by what ended them.",
            ["environment", "cause"],
            registry=self._registry,
        )
        self._sessions = Gauge(
            "longhaul_sessions_open",
            "Sessions that are open.",
            ["environment"],
            registry=self._registry,
        )
        self._workers = Gauge(
            "longhaul_workers",
            "Workers that are running.",
            ["environment"],
            registry=self._registry,
        )

    def watch(self, environment_id: str, fleet: Fleet) -> None:
        """Show a fleet's workers and sessions as they are when somebody asks."""
        self._sessions.labels(environment_id).set_function(lambda: fleet.num_taken)
        self._workers.labels(environment_id).set_function(lambda: fleet.num_workers)

    def called(self, environment_id: str, verb: Verb, seconds: float) -> None:
        """See `TableObserver.called`."""
        of = self._calls_of.get((environment_id, verb))
        if of is None:  # prometheus_client looks a label up under a lock
            of = self._calls.labels(environment_id, verb.value)
            self._calls_of[environment_id, verb] = of
        of.observe(seconds)

    def closed(self, environment_id: str, cause: Cause) -> None:
        """See `TableObserver.closed`."""
        self._closed.labels(environment_id, cause.value).inc()

    def replaced(self, environment_id: str, cause: Cause) -> None:
        """A worker was lost."""
        self._replaced.labels(environment_id, cause.value).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
