"""What a running program listens at, and what it takes there from somebody without a key."""

import http.client
import json
import os
import pickle
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import zmq

HTTP_SECONDS = 2.0
ZEROMQ_SECONDS = 1.0


class Listener(NamedTuple):
    """A TCP port."""

    program: str
    """Of the process that listens."""
    address: str
    """`""` is every address of the machine."""
    port: int


class Seen(NamedTuple):
    """What a stranger saw of a running program."""

    listeners: list[Listener]
    taken: list[str]
    """What ports did for him."""
    open_sockets: list[str]
    """Unix sockets that he could have connected to."""

    def write(self, folder: Path) -> None:
        """Keep it for the tests that come when the program has ended."""
        (folder / "seen.json").write_text(json.dumps(self), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What was kept."""
        listeners, *others = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
        return cls([Listener(*one) for one in listeners], *others)


def looked_at(pid: int) -> Seen:
    """A program and everything below it, by somebody without a key."""
    found = listeners(pid)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(partial(taken_from_a_stranger, folder=Path(folder)), found))
    return Seen(found, [one for each in taken for one in each], open_sockets(pid))


def listeners(pid: int) -> list[Listener]:
    """Ports of a process and of everything below it."""
    found: list[Listener] = []
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            name = process.name()
            connections = process.net_connections(kind="tcp")
        except psutil.Error:  # it has ended
            continue
        for one in connections:
            if one.status == psutil.CONN_LISTEN:
                address: Any = one.laddr
                ip = address.ip.removeprefix("::ffff:")
                everywhere = ip in {"::", "0.0.0.0"}
                found.append(Listener(name, "" if everywhere else ip, address.port))
    return found


def own_address() -> str:
    """This machine's address in the network, or loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return unsent.getsockname()[0]


def taken_from_a_stranger(listener: Listener, *, folder: Path) -> list[str]:
    """What the port did for somebody without a key, by loopback and by the machine's address.

    Args:
        listener: Of a program of this user.
        folder: For files; a pickle that is read makes one there.
    """
    taken: list[str] = []
    for host in dict.fromkeys(["127.0.0.1", own_address()]):
        taken += [
            f"{host}:{listener.port} of {listener.program} {what}"
            for what in (_by_http(host, listener.port), _by_zeromq(host, listener.port, folder))
            if what
        ]
    return taken


class _Written:
    """A file that is made where this is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._path), "w")


def _by_zeromq(host: str, port: int, folder: Path) -> str:
    """TransferQueue's own message, which it unpickles."""
    path = folder / f"{host}-{port}"
    context = zmq.Context()
    try:
        with context.socket(zmq.DEALER) as stranger:
            stranger.linger, stranger.sndtimeo = 0, int(ZEROMQ_SECONDS * 1000)
            stranger.identity = b"TQ_STORAGE_stranger"
            stranger.connect(f"tcp://{host}:{port}")
            try:
                stranger.send_multipart([b"\xc1\xfe\xed", pickle.dumps(_Written(path))])
                stranger.poll(int(ZEROMQ_SECONDS * 1000))
            except zmq.Again:
                return ""
    finally:
        context.term()
    return "unpickled a message" if path.exists() else ""


def _by_http(host: str, port: int) -> str:
    """A page that is more than figures to be watched."""
    connection = http.client.HTTPConnection(host, port, timeout=HTTP_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        text = answer.read(1000)
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
    return f"answered {text!r}" if answer.status < 400 and not text.startswith(b"# HELP") else ""


def open_sockets(pid: int) -> list[str]:
    """Unix sockets of a process and of those below it that another user could connect to.

    An abstract one has no permissions; `SO_PEERCRED` is what its server must ask.
    """
    found: set[str] = set()
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            connections = process.net_connections(kind="unix")
        except psutil.Error:
            continue
        found |= {one.laddr for one in connections if isinstance(one.laddr, str) and one.laddr}
    return sorted(path for path in found if path.startswith("/") and not _is_private(Path(path)))


def _is_private(path: Path) -> bool:
    """Whether a folder above it lets nobody but its owner in."""
    uid = os.getuid()
    for folder in path.parents:
        try:
            status = folder.stat()
        except OSError:
            continue
        if status.st_uid == uid and not status.st_mode & 0o077:
            return True
    return False
