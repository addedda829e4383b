"""Frames and messages on the Raft port. No pickle: nothing that arrives can name code to run.

Frame = payload length u32, CRC-32 of payload u32, payload; little-endian. The length is checked before anything is
buffered. Greetings are JSON; after them come Raft messages in msgpack, checked field by field against one table.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

GREETING_BYTES_MAX = 16 * 1024
FRAME_BYTES_MAX = 16 * 1024 * 1024

Message = dict[str, Any]

_FRAME = struct.Struct("<II")
# Terms and indexes grow by one at a time: none comes near it, and what is one above it still fits everywhere.
NUMBER_MAX = 2**62


@dataclass(frozen=True)
class Versions:
    """Versions of greetings and messages that a node speaks, both ends included.

    Two nodes speak the newest that both know; a new version keeps the one before: nodes are upgraded one by one.
    """

    oldest: int
    newest: int

    def negotiate(self, theirs: Versions) -> int | None:
        """The version that both speak; `None` if there is none."""
        newest = min(self.newest, theirs.newest)
        return newest if newest >= max(self.oldest, theirs.oldest) else None

    def told(self, kind: str) -> dict[str, int]:
        """The versions as a greeting of that kind says them."""
        return {kind: self.newest, "oldest": self.oldest}

    @classmethod
    def parse(cls, greeting: Mapping[str, Any], kind: str) -> Versions:
        """What a greeting says; raises `BadFrameError`."""
        newest: Any = greeting.get(kind)
        oldest: Any = greeting.get("oldest", newest)
        if not _is_number(newest) or not _is_number(oldest) or oldest > newest:
            raise BadFrameError(f"a {kind} of some wire version was expected")
        return cls(oldest, newest)

    def refusal(self, theirs: Versions) -> str:
        """Why nodes that speak these versions cannot talk, and what to do."""
        return f"it speaks wire versions {theirs}, this node {self}: upgrade the older one, one release at a time"

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}"


WIRE = Versions(1, 1)


class BadFrameError(Exception):
    """What arrived is no frame or message of ours: the connection is closed."""


class FrameReader:
    """Cuts a byte stream into frames and never holds more than one frame above the limit."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Payloads that are complete; raises `BadFrameError` on a bad length or checksum."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            length, crc = _FRAME.unpack_from(self._buffer)
            if length > self.frame_bytes_max:
                raise BadFrameError(f"a frame of {length} bytes is announced, {self.frame_bytes_max} are allowed")
            if len(self._buffer) < _FRAME.size + length:
                return
            payload = bytes(self._buffer[_FRAME.size : _FRAME.size + length])
            del self._buffer[: _FRAME.size + length]
            if zlib.crc32(payload) != crc:
                raise BadFrameError("a frame fails its checksum")
            yield payload


def encode_frame(payload: bytes) -> bytes:
    """What `FrameReader` reads back."""
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def encode_greeting(greeting: Mapping[str, object]) -> bytes:
    """A frame with JSON."""
    return encode_frame(json.dumps(greeting).encode())


def decode_greeting(payload: bytes) -> dict[str, Any]:
    """The JSON object of a greeting; raises `BadFrameError`."""
    try:
        greeting = json.loads(payload)
    except (ValueError, RecursionError):
        raise BadFrameError("a greeting is not JSON") from None
    if not isinstance(greeting, dict):
        raise BadFrameError("a greeting is no JSON object")
    return greeting


def encode_message(message: Message) -> bytes:
    """A frame with a Raft message."""
    payload: bytes = msgpack.packb(message)
    return encode_frame(payload)


def decode_message(payload: bytes) -> Message:
    """The message, with exactly the fields and types of its kind; raises `BadFrameError`."""
    try:
        message = msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except Exception:  # msgpack raises ValueError, and classes that share no base
        raise BadFrameError("a message is not msgpack") from None
    if not isinstance(message, dict):
        raise BadFrameError("a message is no map")
    kind = message.get("type")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None or message.keys() != fields.keys() | {"type"}:
        raise BadFrameError("a message is of no known kind")
    for name, check in fields.items():
        if not check(message[name]):
            raise BadFrameError(f"a message {message['type']} has a bad {name}")
    return message


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _is_flag(value: object) -> bool:
    return type(value) is bool


def _is_bytes(value: object) -> bool:
    return type(value) is bytes


def _is_entries(value: object) -> bool:
    return type(value) is list and all(
        type(entry) is list
        and len(entry) == 3
        and _is_bytes(entry[0])
        and entry[0]
        and _is_number(entry[1])
        and _is_number(entry[2])
        for entry in value
    )


# PySyncObj itself sends `request_vote`; the others are ours.
_FIELDS = {
    "ask_vote": {"term": _is_number, "last_log_index": _is_number, "last_log_term": _is_number},
    "would_vote": {"term": _is_number},
    "request_vote": {"term": _is_number, "last_log_index": _is_number, "last_log_term": _is_number},
    "vote": {"term": _is_number},
    "append": {
        "term": _is_number,
        "commit": _is_number,
        "previous_index": _is_number,
        "previous_term": _is_number,
        "entries": _is_entries,
    },
    "append_reply": {"term": _is_number, "success": _is_flag, "next_index": _is_number},
    "snapshot": {
        "term": _is_number,
        "index": _is_number,
        "size": _is_number,
        "position": _is_number,
        "data": _is_bytes,
    },
    "snapshot_reply": {"term": _is_number, "index": _is_number, "position": _is_number},
    "stand": {"term": _is_number},
    "propose": {"request": _is_number, "command": _is_bytes},
    "proposed": {"request": _is_number, "index": _is_number, "term": _is_number, "refused": _is_flag},
}
