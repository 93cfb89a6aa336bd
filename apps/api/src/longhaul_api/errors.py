"""One place that turns our exceptions into HTTP answers.

    LookupError    404   no such run, group, episode or step
    ConfigError    422   a question that makes no sense; as pydantic's own validation
    StoreError     503   the database is locked or gone: try again, or look at the server

Anything else is a defect of ours and stays a 500. The body is always `{"detail": …}`.
"""

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from longhaul_core.errors import ConfigError, StoreError

__all__ = ["Problem", "add_error_handlers"]

STATUS_CODES: dict[type[Exception], int] = {LookupError: 404, ConfigError: 422, StoreError: 503}


class Problem(BaseModel):
    """What went wrong, for people."""

    detail: str


def add_error_handlers(app: FastAPI) -> None:
    """Answer every exception in the table with its status code."""
    for exception, status_code in STATUS_CODES.items():
        app.add_exception_handler(exception, _handler(status_code))


def _handler(status_code: int) -> Callable[[Request, Exception], JSONResponse]:
    def answer(_request: Request, error: Exception) -> JSONResponse:
        # str(KeyError) is the repr of its message; the argument itself reads better.
        return JSONResponse({"detail": str(error.args[0] if error.args else error)}, status_code)

    return answer
