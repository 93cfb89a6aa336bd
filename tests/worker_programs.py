"""What fork servers of tests run in their workers (`ForkServer.start("worker_programs:…")`)."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from longhaul_core.gym.supervised import Channel, Kind, framed


def recorder(greeting: str) -> Callable[[Channel], None]:
    """Greets, then answers each request with all requests up to it."""

    def serve(channel: Channel) -> None:
        channel.send(framed(Kind.ANSWER, greeting.encode()))
        requests: list[bytes] = []
        while (request := channel.receive()) is not None:
            requests.append(request)
            channel.send(framed(Kind.ANSWER, b"".join(requests)))

    return serve


def writing(name: str) -> Callable[[Channel], None]:
    """Makes a temporary folder of this name, greets with its path, and waits for ever."""

    def serve(channel: Channel) -> None:
        made = tempfile.mkdtemp(prefix=name)
        Path(made, "profile").write_text("a page was here", encoding="utf-8")
        channel.send(framed(Kind.ANSWER, made.encode()))
        while channel.receive() is not None:
            pass

    return serve


def raw(sent: str) -> Callable[[Channel], None]:
    """Greets, then sends these bytes, in hexadecimal, at the first request and waits for ever."""

    def serve(channel: Channel) -> None:
        channel.send(framed(Kind.ANSWER, b""))
        channel.receive()
        channel.send(bytes.fromhex(sent))
        while channel.receive() is not None:
            pass

    return serve


def inheritable(_: str) -> Callable[[Channel], None]:
    """Greets with the descriptors that its programs inherit; on its line it says them again."""

    def descriptors() -> bytes:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
        return " ".join(str(one) for one in sorted(found) if inherited(one)).encode()

    def inherited(descriptor: int) -> bool:
        try:
            return os.get_inheritable(descriptor)
        except OSError:  # the one by which they were listed
            return False

    def serve(channel: Channel) -> None:
        channel.send(framed(Kind.ANSWER, descriptors()))
        line = channel.receive_line()
        if line is not None:
            line.send(framed(Kind.ANSWER, descriptors()))

    return serve


def refusing(message: str) -> Callable[[Channel], None]:
    """Cannot be prepared."""
    raise ValueError(message)


def exiting(status: str) -> Callable[[Channel], None]:
    """Its workers exit before they greet."""
    return lambda channel: sys.exit(int(status))
