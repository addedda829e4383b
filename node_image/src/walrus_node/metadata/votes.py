"""The term and the vote of a Raft member, durable before anyone hears of them; a damaged file refuses the start.

File: magic 8s, version u32, zero u32, term u64, voted-for disk 16s (nil: nobody), CRC-32 of all before u32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from walrus_node.files import DataRefusedError, replace_durably
from walrus_node.metadata.reserve import Reserve

FORMAT_VERSION = 1

_MAGIC = b"WALRUSMV"
_BODY = struct.Struct("<8sIIQ16s")
_CRC = struct.Struct("<I")
_NOBODY = UUID(int=0)


class Votes:
    """A member that forgot its vote could vote twice in one term, so it must not start without it."""

    def __init__(self, path: Path, reserve: Reserve | None = None) -> None:
        """Read the file; raises `DataRefusedError` if it is missing, damaged or newer.

        *reserve* gives space where the disk has none.
        """
        self._path = path
        self._spend: Callable[[Callable[[], None]], None] = reserve.spend if reserve else lambda write: write()
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DataRefusedError(f"vote file {path} is missing; {_REMEDY}") from None
        self.term, self.voted_for = _decode(content, path)

    @staticmethod
    def create(path: Path) -> None:
        """Write the file of a member that never voted."""
        replace_durably(path, _encode(0, None))

    def record(self, term: int, voted_for: UUID | None) -> None:
        """Durable on return."""
        assert term >= self.term, "terms never go back"
        if (term, voted_for) == (self.term, self.voted_for):
            return
        self._spend(lambda: replace_durably(self._path, _encode(term, voted_for)))
        self.term, self.voted_for = term, voted_for


_REMEDY = "this node could vote twice: give it an empty data directory and let it join again"


def _encode(term: int, voted_for: UUID | None) -> bytes:
    body = _BODY.pack(_MAGIC, FORMAT_VERSION, 0, term, (voted_for or _NOBODY).bytes)
    return body + _CRC.pack(zlib.crc32(body))


def _decode(content: bytes, path: Path) -> tuple[int, UUID | None]:
    body = content[: _BODY.size]
    if len(content) != _BODY.size + _CRC.size or _CRC.unpack(content[_BODY.size :])[0] != zlib.crc32(body):
        raise DataRefusedError(f"vote file {path} is damaged; {_REMEDY}")
    magic, version, _, term, voted_for = _BODY.unpack(body)
    if magic != _MAGIC:
        raise DataRefusedError(f"{path} is not a vote file; {_REMEDY}")
    if version > FORMAT_VERSION:
        raise DataRefusedError(
            f"vote file {path} has format {version}, newer than {FORMAT_VERSION}; start a newer walrus-node"
        )
    vote = UUID(bytes=voted_for)
    return term, None if vote == _NOBODY else vote
