"""No parameter that an address does not know: a misspelt filter would answer with everything."""

from functools import cache

from fastapi import FastAPI, Request

from longhaul_core.errors import ConfigError

__all__ = ["refuse_unknown_parameters"]


async def refuse_unknown_parameters(request: Request) -> None:  # async: needs no thread
    """A dependency of every route.

    Raises:
        ConfigError: The request has a query parameter that the route does not take.
    """
    route = request.scope["route"]
    known = _parameters(request.app).get((route.path_format, request.method.lower()))
    if known is None:
        return
    for name, value in request.query_params.items():
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise ConfigError(
                f"{name}: {value[:80]!r} is for no parameter of this address; {takes}"
            )


@cache
def _parameters(app: FastAPI) -> dict[tuple[str, str], frozenset[str]]:
    """Names of each operation's query parameters, as the OpenAPI document has them."""
    return {
        (path, method): frozenset(
            parameter["name"]
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "query"
        )
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    }
