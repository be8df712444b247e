"""The wire between a verifier process and its owner: 4 bytes length (big endian), then ASCII JSON.

ASCII, so that NUL bytes and lone surrogates in a completion pass unchanged. Both ends import only this.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

HEADER = struct.Struct(">I")


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message of a blocking stream; None when the other end is gone."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = stream.read(size)
    if len(body) < size:
        return None
    message: dict[str, Any] = json.loads(body)
    return message
