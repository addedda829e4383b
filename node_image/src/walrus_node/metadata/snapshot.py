"""A snapshot: the state machine's bytes up to one log entry, with the voters at that point. The same bytes lie on disk
and travel to a member that is too far behind; they are checked in both places before anything is replaced.

File: magic 8s, version u32, head length u32, CRC-32 of head and state u32, CRC-32 of all before u32, head (JSON),
state.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from walrus_node.files import DataRefusedError, replace_durably
from walrus_node.metadata.wire import NUMBER_MAX

FORMAT_VERSION = 1

_MAGIC = b"WALRUSMS"
_FRONT = struct.Struct("<8sIII")
_CRC = struct.Struct("<I")
_FRONT_BYTES = _FRONT.size + _CRC.size


@dataclass(frozen=True)
class Snapshot:
    """The state after entry `index`; `voters` are the disks that vote from there on."""

    cluster_id: UUID
    index: int
    term: int
    voters: frozenset[UUID]
    state: bytes

    def encode(self) -> bytes:
        head = json.dumps(
            {
                "cluster_id": str(self.cluster_id),
                "index": self.index,
                "term": self.term,
                "voters": sorted(str(voter) for voter in self.voters),
            }
        ).encode()
        front = _FRONT.pack(_MAGIC, FORMAT_VERSION, len(head), zlib.crc32(head + self.state))
        return front + _CRC.pack(zlib.crc32(front)) + head + self.state

    @staticmethod
    def decode(content: bytes) -> Snapshot:
        """Raises `ValueError` with what is wrong."""
        front = content[: _FRONT.size]
        if len(content) < _FRONT_BYTES or _CRC.unpack_from(content, _FRONT.size)[0] != zlib.crc32(front):
            raise ValueError("its beginning is damaged")
        magic, version, head_bytes, crc = _FRONT.unpack(front)
        if magic != _MAGIC:
            raise ValueError("it is no metadata snapshot")
        if version > FORMAT_VERSION:
            raise ValueError(f"its format {version} is newer than {FORMAT_VERSION}; start a newer walrus-node")
        if zlib.crc32(content[_FRONT_BYTES:]) != crc:
            raise ValueError("its checksum differs")
        try:
            head = json.loads(content[_FRONT_BYTES : _FRONT_BYTES + head_bytes])
            cluster_id, voters = UUID(head["cluster_id"]), frozenset(UUID(voter) for voter in head["voters"])
            index, term = head["index"], head["term"]
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError("its head lacks something") from None
        if not all(type(number) is int and 0 <= number <= NUMBER_MAX for number in (index, term)) or not voters:
            raise ValueError("its head is of no possible entry")
        return Snapshot(cluster_id, index, term, voters, content[_FRONT_BYTES + head_bytes :])


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Durable on return; before that the old one stands."""
    replace_durably(path, snapshot.encode())


def load_snapshot(path: Path) -> Snapshot | None:
    """The snapshot, `None` where a member that just joined has none yet; raises `DataRefusedError` if damaged."""
    try:
        return Snapshot.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataRefusedError(
            f"metadata snapshot {path} is refused: {error}; "
            "give this node an empty data directory and let it join again"
        ) from None
