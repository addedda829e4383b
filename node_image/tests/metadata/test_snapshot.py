"""A snapshot is taken whole or not at all."""

from pathlib import Path
from uuid import uuid4

import pytest
from walrus_node.files import DataRefusedError
from walrus_node.metadata.snapshot import Snapshot, load_snapshot, save_snapshot

SNAPSHOT = Snapshot(uuid4(), 12, 3, frozenset({uuid4(), uuid4()}), b'{"state": 1}')


def test_it_is_read_back(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "snapshot", SNAPSHOT)
    assert load_snapshot(tmp_path / "snapshot") == SNAPSHOT


def test_there_may_be_none(tmp_path: Path) -> None:
    assert load_snapshot(tmp_path / "snapshot") is None


def test_every_damaged_byte_and_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    content = SNAPSHOT.encode()
    for position in range(len(content)):
        for damaged in (
            content[:position],
            content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :],
        ):
            path.write_bytes(damaged)
            with pytest.raises(DataRefusedError, match="is refused"):
                load_snapshot(path)
