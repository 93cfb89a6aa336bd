"""Ports for servers that tests start in processes of their own."""

import random
import socket
from contextlib import suppress

__all__ = ["free_port"]


def free_port() -> int:
    """A port that nobody listens on, nor is given who names none: Linux begins at 32,768.

    Until the server listens there, which takes seconds, other tests are given ports too.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports were taken")
