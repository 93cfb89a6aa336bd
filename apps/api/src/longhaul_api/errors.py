"""One place that turns our exceptions into HTTP answers.

    LookupError             404   no such run, group, episode, step or picture
    ConfigError             422   a question that makes no sense
    ComparisonError         422   two results that cannot be compared
    QueryError              422   SQL that is wrong, may not be run, or took too much
    RequestValidationError  422   a parameter that is none, or out of its bounds
    StoreError              503   the store cannot be read now; with Retry-After where that passes

Anything else is a defect of ours and stays a 500. The body is always `{"detail": …}`.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from longhaul_core.errors import ComparisonError, ConfigError, QueryError, StoreError
from longhaul_core.store.addresses import is_temporary

__all__ = ["RETRY_SECONDS", "Problem", "add_error_handlers"]

STATUS_CODES: dict[type[Exception], int] = {
    LookupError: 404,
    ConfigError: 422,
    ComparisonError: 422,
    QueryError: 422,
    RequestValidationError: 422,
    StoreError: 503,
}
RETRY_SECONDS = 5
"""When to ask again if the store is held, out of reach, or asked too much at once."""


class Problem(BaseModel):
    """What went wrong, for people."""

    detail: str


def add_error_handlers(app: FastAPI) -> None:
    """Answer every exception in the table with its status code."""
    for exception, status_code in STATUS_CODES.items():
        app.add_exception_handler(exception, _handler(status_code))


def _handler(status_code: int) -> Callable[[Request, Exception], JSONResponse]:
    def answer(_request: Request, error: Exception) -> JSONResponse:
        passes = isinstance(error, StoreError) and is_temporary(error)
        return JSONResponse(
            {"detail": _detail(error)},
            status_code,
            headers={"Retry-After": str(RETRY_SECONDS)} if passes else None,
        )

    return answer


def _detail(error: Exception) -> str:
    if isinstance(error, RequestValidationError):
        problems = cast("list[Mapping[str, Any]]", error.errors())
        return "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'][1:])}: {problem['msg']}, "
            f"got {problem['input']!r}"
            for problem in problems
        )
    # str(KeyError) is the repr of its message; the argument itself reads better.
    return str(error.args[0] if error.args else error)
