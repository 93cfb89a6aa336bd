"""Server-sent events."""

import msgspec

__all__ = ["COMMENT", "event"]

COMMENT = b": waiting\n\n"
"""Says nothing, and keeps a connection from being taken for a dead one."""


def event(data: object, *, name: str | None = None) -> bytes:
    """One event with JSON data."""
    head = b"" if name is None else b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(data))
