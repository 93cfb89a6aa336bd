"""What fork servers of tests run in their workers (`ForkServer.start("worker_programs:…")`)."""

import sys
from collections.abc import Callable

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


def raw(sent: str) -> Callable[[Channel], None]:
    """Greets, then sends these bytes, in hexadecimal, at the first request and waits for ever."""

    def serve(channel: Channel) -> None:
        channel.send(framed(Kind.ANSWER, b""))
        channel.receive()
        channel.send(bytes.fromhex(sent))
        while channel.receive() is not None:
            pass

    return serve


def refusing(message: str) -> Callable[[Channel], None]:
    """Cannot be prepared."""
    raise ValueError(message)


def exiting(status: str) -> Callable[[Channel], None]:
    """Its workers exit before they greet."""
    return lambda channel: sys.exit(int(status))
