"""A node is the UUID on its disk, and one process at a time has the disk."""

import json
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from walrus_node.files import DataRefusedError
from walrus_node.identity import DataDirectory


def no_metadata() -> tuple[UUID, UUID]:
    raise AssertionError("nobody needs to ask the metadata")


def test_the_disk_keeps_its_identity(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "new" / "data")
    minted = directory.load_identity(no_metadata)
    assert (minted.cluster_id, minted.node_id) == (None, None)
    admitted = replace(minted, cluster_id=uuid4(), node_id=3)
    directory.save_identity(admitted)
    directory.unlock()
    again = DataDirectory(tmp_path / "new" / "data")
    assert again.load_identity(no_metadata) == admitted
    again.unlock()


def test_an_emptied_disk_is_another_one(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first = directory.load_identity(no_metadata)
    (tmp_path / "identity.json").unlink()
    assert directory.load_identity(no_metadata).disk != first.disk
    directory.unlock()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.raises(DataRefusedError, match="another process runs on it"):
        DataDirectory(tmp_path)
    directory.unlock()
    DataDirectory(tmp_path).unlock()


def test_a_directory_that_is_let_go_is_free_while_a_program_that_is_being_started_has_the_descriptor(
    tmp_path: Path,
) -> None:
    """Until a child has started its program it has copies of all descriptors, and a lock lives as long as the last."""
    directory = DataDirectory(tmp_path)
    copy = os.dup(directory._lock)
    directory.unlock()
    DataDirectory(tmp_path).unlock()
    os.close(copy)


def test_records_without_identity_and_metadata_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    directory = DataDirectory(tmp_path)
    with pytest.raises(DataRefusedError, match=r"identity.json is missing, and there are no metadata"):
        directory.load_identity(no_metadata)
    directory.unlock()


def test_a_damaged_identity_is_refused_byte_by_byte_where_nothing_else_tells_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.load_identity(no_metadata)
    path = tmp_path / "identity.json"
    content = path.read_bytes()
    facts = json.loads(content)
    for position in range(len(content)):
        damaged = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        path.write_bytes(damaged)
        if _is_same(damaged, facts):
            continue  # white space
        with pytest.raises(DataRefusedError, match="is damaged"):
            directory.load_identity(no_metadata)
    directory.unlock()


def test_a_damaged_or_lost_identity_is_made_again_from_the_metadata(tmp_path: Path) -> None:
    """One flipped bit in it closed the node; in its format, with advice to start a newer version."""
    directory = DataDirectory(tmp_path)
    minted = directory.load_identity(no_metadata)
    cluster_id = uuid4()
    identity = replace(minted, cluster_id=cluster_id, node_id=7)
    directory.save_identity(identity)
    (tmp_path / "metadata").mkdir()
    path = tmp_path / "identity.json"
    content = path.read_bytes()
    facts = json.loads(content)
    for position in range(len(content)):
        damaged = content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]
        path.write_bytes(damaged)
        found = directory.load_identity(lambda: (minted.disk, cluster_id))
        assert found == (identity if _is_same(damaged, facts) else replace(identity, node_id=None))
    path.unlink()
    remade = directory.load_identity(lambda: (minted.disk, cluster_id))
    assert remade == replace(identity, node_id=None)
    assert directory.load_identity(no_metadata) == remade
    directory.unlock()


def _is_same(damaged: bytes, facts: object) -> bool:
    try:
        return bool(json.loads(damaged) == facts)
    except ValueError:
        return False


def test_a_newer_identity_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(tmp_path)
    monkeypatch.setattr("walrus_node.identity.FORMAT_VERSION", 2)
    directory.load_identity(no_metadata)
    monkeypatch.undo()
    with pytest.raises(DataRefusedError, match="start a newer walrus-node"):
        directory.load_identity(no_metadata)
    directory.unlock()
