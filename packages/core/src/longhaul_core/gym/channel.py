"""Messages between a worker process and its owner, over a socket.

A message is one letter that says what it is, and UTF-8 text, led by the length of both
in 4 bytes. The text is JSON where it is more than a sentence; nothing is ever pickled,
so a worker that an environment took over can send nonsense but no code.
"""

import asyncio
import socket
import struct
from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "ChannelClosed",
    "Kind",
    "Message",
    "packed",
    "receive",
    "receive_async",
    "send",
    "send_async",
]

_LENGTH = struct.Struct("!I")
_MAX_BYTES = 16 * 2**20


class Kind(StrEnum):
    """What a message is."""

    CONFIG = "C"
    """To a fork server: what its workers are to play."""
    READY = "H"
    """From a fork server or a worker: it has started and waits."""
    RESET = "R"
    STEP = "S"
    ANSWER = "A"
    """From a worker: what came back, as JSON."""
    ERROR = "E"
    """From a worker: what the environment raised."""
    OBITUARY = "D"
    """From the fork server: how the worker died."""


class Message(NamedTuple):
    """One message."""

    kind: Kind
    text: str


class ChannelClosed(ConnectionError):
    """The other side is gone, or sent what is no message."""


def send(connection: socket.socket, message: Message) -> None:
    """Send, waiting as long as it takes."""
    connection.sendall(packed(message))


def receive(connection: socket.socket) -> Message:
    """The next message, waiting as long as it takes.

    Raises:
        ChannelClosed: If there is no next message.
    """
    body = _read(connection, _length(_read(connection, _LENGTH.size)))
    return _unpacked(body)


async def send_async(connection: socket.socket, message: Message) -> None:
    """Send on a non-blocking socket."""
    await asyncio.get_running_loop().sock_sendall(connection, packed(message))


async def receive_async(connection: socket.socket) -> Message:
    """The next message of a non-blocking socket. Cancelled half-way, the rest is lost.

    Raises:
        ChannelClosed: If there is no next message.
    """
    length = _length(await _read_async(connection, _LENGTH.size))
    return _unpacked(await _read_async(connection, length))


def packed(message: Message) -> bytes:
    """The bytes that are sent.

    Raises:
        ValueError: If there are too many.
    """
    body = (message.kind + message.text).encode()
    if len(body) > _MAX_BYTES:
        raise ValueError(f"message of {len(body)} bytes exceeds the limit of {_MAX_BYTES}")
    return _LENGTH.pack(len(body)) + body


def _length(header: bytes) -> int:
    (length,) = _LENGTH.unpack(header)
    if not 1 <= length <= _MAX_BYTES:
        raise ChannelClosed(f"length of a message must lie in [1, {_MAX_BYTES}], got {length}")
    return length


def _unpacked(body: bytes) -> Message:
    try:
        text = body.decode()
        return Message(Kind(text[0]), text[1:])
    except ValueError as error:  # not UTF-8, or of no kind that we know
        raise ChannelClosed(f"not a message: {body[:40]!r}") from error


def _read(connection: socket.socket, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        part = connection.recv(num_bytes - len(parts))
        if not part:
            raise ChannelClosed("the other side is gone")
        parts += part
    return bytes(parts)


async def _read_async(connection: socket.socket, num_bytes: int) -> bytes:
    loop = asyncio.get_running_loop()
    parts = bytearray()
    while len(parts) < num_bytes:
        part = await loop.sock_recv(connection, num_bytes - len(parts))
        if not part:
            raise ChannelClosed("the other side is gone")
        parts += part
    return bytes(parts)
