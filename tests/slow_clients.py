"""Clients that begin a request and do not end it."""

import socket
from urllib.parse import urlsplit

HALF_A_HEADER = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: a"


def last_words(address: str, *, sent: bytes) -> bytes:
    """What a server answers before it closes a connection."""
    parts = urlsplit(address)
    said = bytearray()
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=60) as connection:
        connection.sendall(sent)
        while part := connection.recv(65_536):
            said += part
    return bytes(said)
