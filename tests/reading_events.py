"""Server-sent events, read as the standard says."""

from dataclasses import dataclass

__all__ = ["Event", "read_events"]


@dataclass(frozen=True)
class Event:
    """One event."""

    name: str | None
    data: str


def read_events(stream: bytes) -> list[Event]:
    """All events of a stream, comments left out; it must end with an empty line."""
    assert stream.endswith(b"\n\n"), stream[-80:]
    found: list[Event] = []
    for block in stream.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = [line.partition(": ")[::2] for line in lines]
        data = [value for name, value in fields if name == "data"]
        names = [value for name, value in fields if name == "event"]
        assert {name for name, _ in fields} <= {"data", "event"}, block
        if data:
            found.append(Event(names[0] if names else None, "\n".join(data)))
    return found
