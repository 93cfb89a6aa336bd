"""Why the session table refuses something, with the status code that HTTP has for it.

    Refused
    ├── NotServed       404   no such environment, task or picture
    ├── Conflict        409   the step's number, or its action, does not fit
    ├── Gone            410   the session is no more; its cause says why
    ├── QuotaSpent      429   the client has its share of sessions; ask again later
    └── Unavailable     503   starting, full or draining; ask again later

A session that failed is *gone*, with its cause, and never a 5xx: what went wrong is the episode,
not the server, and a client must not ask again.
"""

from enum import StrEnum

from longhaul_core.errors import LonghaulError

__all__ = ["Cause", "Conflict", "Gone", "NotServed", "QuotaSpent", "Refused", "Unavailable"]


class Cause(StrEnum):
    """Why a session is no more."""

    CLOSED = "closed"
    """The client closed it."""
    LEASE = "lease"
    """Nobody used it for as long as its lease."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment raised an error."""
    TIMEOUT = "timeout"
    """The environment did not return in time; its worker was killed."""
    MEMORY = "memory"
    """The worker held more memory than it may; it was killed."""
    WORKER_LOST = "worker_lost"
    """The worker ended by itself, or was ended from outside."""
    DRAINED = "drained"
    """The server was stopped before the episode's end."""
    UNKNOWN = "unknown"
    """The server does not know it: it never was, it is long gone, or the server was restarted."""


class Refused(LonghaulError):
    """The table does not do what was asked."""

    status = 400
    cause = "refused"
    retry_after_seconds: int | None = None


class NotServed(Refused):
    """There is no such thing here."""

    status = 404
    cause = "not_served"


class Conflict(Refused):
    """It does not fit the session's state."""

    status = 409
    cause = "conflict"


class Gone(Refused):
    """The session is no more."""

    status = 410

    def __init__(self, message: str, cause: Cause = Cause.UNKNOWN) -> None:
        super().__init__(message)
        self.cause = cause.value


class QuotaSpent(Refused):
    """The client has as many sessions as it may have."""

    status = 429
    cause = "quota"
    retry_after_seconds = 1


class Unavailable(Refused):
    """Not now."""

    status = 503
    retry_after_seconds = 1

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause
        """`starting`, `full` or `draining`."""
