"""Who this node is: the disk's UUID, minted once on an empty disk, and the cluster and id that it was given.

`identity.json` is replaced as a whole and carries a checksum. What it says of disk and cluster, the metadata's files
say too: damaged or lost, it is made again from them. The lock keeps a second process off the directory.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from walrus_node.files import DataRefusedError, replace_durably, sync_directory

log = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """`cluster_id` and `node_id` are unknown until the node was admitted."""

    disk: UUID
    cluster_id: UUID | None = None
    node_id: int | None = None
    # The disk that this node was before, whose votes are lost; its files are under `former`.
    replaces: UUID | None = None


class DataDirectory:
    """The node's directory, locked while this object lives."""

    def __init__(self, path: Path) -> None:
        """Create the directory if need be and lock it; raises `DataRefusedError`."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataRefusedError(f"data directory {path} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise DataRefusedError(f"data directory {path} is locked: another process runs on it") from None

    @property
    def metadata(self) -> Path:
        """Journal, votes and snapshot of the metadata."""
        return self.path / "metadata"

    def load_identity(self, by_metadata: Callable[[], tuple[UUID, UUID]]) -> Identity:
        """Read who the disk is, or mint it on an empty one; raises `DataRefusedError`.

        *by_metadata* says disk and cluster by the files in `metadata`, or raises `DataRefusedError`.
        """
        path = self.path / "identity.json"
        try:
            return _decode(path.read_bytes(), path)
        except FileNotFoundError:
            what = "missing"
        except ValueError:
            what = "damaged"
        if self.metadata.exists():
            disk, cluster_id = by_metadata()
            identity = Identity(disk, cluster_id)
            log.warning("%s is %s: made again from the metadata, disk %s in cluster %s", path, what, disk, cluster_id)
            self.save_identity(identity)
            return identity
        if what == "damaged" or (self.path / "log").exists():
            raise DataRefusedError(
                f"{path} is {what}, and there are no metadata to make it again from: put a good copy back, "
                "or give the node an empty data directory"
            )
        identity = Identity(disk=uuid4())
        self.save_identity(identity)
        sync_directory(self.path.parent)
        return identity

    def save_identity(self, identity: Identity) -> None:
        """Durable on return."""
        replace_durably(self.path / "identity.json", _encode(identity))

    def unlock(self) -> None:
        """Let another process have the directory.

        A program that is being started has a copy of the descriptor, which would hold the lock: it is given up by name.
        """
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)


def _encode(identity: Identity) -> bytes:
    facts: dict[str, Any] = {"format": FORMAT_VERSION}
    facts |= {name: str(value) if isinstance(value, UUID) else value for name, value in asdict(identity).items()}
    return json.dumps({**facts, "checksum": _checksum(facts)}, indent=2).encode() + b"\n"


def _decode(content: bytes, path: Path) -> Identity:
    """Raises `ValueError` if it is damaged. A version counts only under a right checksum."""
    try:
        facts = json.loads(content)
        checksum = facts.pop("checksum")
        if checksum != _checksum(facts):
            raise ValueError("its checksum differs")
        version = facts["format"]
        if version > FORMAT_VERSION:
            raise DataRefusedError(
                f"{path} has format {version}, newer than {FORMAT_VERSION}; start a newer walrus-node"
            )
        return Identity(
            disk=UUID(facts["disk"]),
            cluster_id=UUID(facts["cluster_id"]) if facts["cluster_id"] else None,
            node_id=facts["node_id"],
            replaces=UUID(facts["replaces"]) if facts.get("replaces") else None,
        )
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it lacks something") from None


def _checksum(facts: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(facts, sort_keys=True).encode()):08x}"
