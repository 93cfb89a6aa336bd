"""Small pictures for tests, encoded as PNG by hand: signature, header, one block of rows."""

import struct
import zlib
from typing import Literal

COLOURS = {"red": (210, 50, 50), "green": (40, 160, 90), "blue": (90, 90, 220)}


def png(colour: Literal["red", "green", "blue"], *, width: int = 48, height: int = 32) -> bytes:
    """A picture of one colour."""
    row = b"\0" + bytes(COLOURS[colour]) * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(row * height)),
            (b"IEND", b""),
        )
    )
