"""Sockets of ZeroMQ that take no message from whoever lacks their key.

Everybody who reaches a machine can connect to its ports, other users of it included. libzmq asks
for the key in the handshake of a connection, before it takes a message from it; a thread of the
socket's own context answers whether the key is right (ZeroMQ's RFC 27).

Keys are made where a socket listens, and travel by Ray alone, which has a token of its own: they
are in no environment, on no command line and in no log.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils import z85

Socket = zmq.Socket[Any]

DOOR = "inproc://zeromq.zap.01"
"""Where libzmq asks for each connection to a locked socket of a context."""


@dataclass(frozen=True, slots=True)
class Key:
    """Both sides prove that they have it, and all that travels is encrypted (CURVE)."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)

    @classmethod
    def drawn(cls) -> Key:
        """A new one."""
        return cls(*zmq.curve_keypair())

    def lock(self, socket: Socket) -> None:
        """Have a socket that listens ask for the key; call before it is bound."""
        _keep_door(socket.context, z85.decode(self.public))
        socket.curve_server = True
        socket.curve_secretkey = self.secret

    def unlock(self, socket: Socket) -> None:
        """Have a socket that connects show the key; call before it is connected."""
        socket.curve_serverkey = self.public
        socket.curve_publickey = self.public
        socket.curve_secretkey = self.secret


@dataclass(frozen=True, slots=True)
class Password:
    """The side that connects shows it, and then nothing is encrypted (PLAIN).

    For what is too much to encrypt, on a network where nobody listens in.
    """

    text: str = field(repr=False)

    @classmethod
    def drawn(cls) -> Password:
        """A new one."""
        return cls(secrets.token_urlsafe(32))

    def lock(self, socket: Socket) -> None:
        """See `Key.lock`."""
        _keep_door(socket.context, self.text.encode())
        socket.plain_server = True

    def unlock(self, socket: Socket) -> None:
        """See `Key.unlock`."""
        socket.plain_username = b"longhaul"
        socket.plain_password = self.text.encode()


def _keep_door(context: zmq.Context[Any], expected: bytes) -> None:
    """Admit to the locked sockets of a context who shows what is expected; safe to call twice."""
    door = context.socket(zmq.REP)
    try:
        door.bind(DOOR)
    except zmq.ZMQError:  # another socket of the context is locked already, with the same key
        door.close()
        return
    threading.Thread(target=_admit, args=(door, expected), name="door", daemon=True).start()


def _admit(door: Socket, expected: bytes) -> None:
    """Answer for each connection until the context ends."""
    try:
        while True:
            version, request, _domain, _address, _identity, _kind, *shown = door.recv_multipart()
            right = hmac.compare_digest(shown[-1], expected)
            door.send_multipart([version, request, b"200" if right else b"400", b"", b"", b""])
    except zmq.ZMQError:
        door.close(linger=0)
