"""One cache of compiled statements for all engines of a test process.

SQLAlchemy keeps what it compiled with the engine. A test opens engines of its own on a store of
some rows, and would spend most of its time on compiling the same statements as the test before.
"""

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import Compiled, Dialect
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache[Any, Compiled] = LRUCache(5000)


class _OfAKind(dict[Any, Compiled]):
    """What SQLAlchemy asks of a cache, whose keys begin with the dialect of one engine."""

    def get(self, key: tuple[Dialect, Any], default: Any = None) -> Any:  # noqa: ANN401
        return _COMPILED.get(_shared(key), default)

    def __setitem__(self, key: tuple[Dialect, Any], value: Compiled) -> None:
        _COMPILED[_shared(key)] = value


def _shared(key: tuple[Dialect, Any]) -> tuple[Any, ...]:
    return (type(key[0]), *key[1:])


def share_compiled_statements() -> None:
    """Let every connection that is opened from now on take part."""
    cache = _OfAKind()

    @event.listens_for(Engine, "engine_connect")
    def _(connection: Connection) -> None:
        connection.execution_options(compiled_cache=cache)
