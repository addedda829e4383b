"""A node is the UUID on its disk, and one process at a time has the disk."""

import json
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from walrus_node.files import DataRefusedError
from walrus_node.identity import DataDirectory


def test_the_disk_keeps_its_identity(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "new" / "data")
    minted = directory.load_identity()
    assert (minted.cluster_id, minted.node_id) == (None, None)
    admitted = replace(minted, cluster_id=uuid4(), node_id=3)
    directory.save_identity(admitted)
    directory.unlock()
    again = DataDirectory(tmp_path / "new" / "data")
    assert again.load_identity() == admitted
    again.unlock()


def test_an_emptied_disk_is_another_one(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first = directory.load_identity()
    (tmp_path / "identity.json").unlink()
    assert directory.load_identity().disk != first.disk
    directory.unlock()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.raises(DataRefusedError, match="another process runs on it"):
        DataDirectory(tmp_path)
    directory.unlock()
    DataDirectory(tmp_path).unlock()


def test_data_without_identity_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    directory = DataDirectory(tmp_path)
    with pytest.raises(DataRefusedError, match=r"identity.json is missing, but metadata/ is there"):
        directory.load_identity()
    directory.unlock()


def test_a_damaged_identity_is_refused_byte_by_byte(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.load_identity()
    path = tmp_path / "identity.json"
    content = path.read_bytes()
    facts = json.loads(content)
    for position in range(len(content)):
        damaged = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        path.write_bytes(damaged)
        if _is_same(damaged, facts):
            continue  # white space
        with pytest.raises(DataRefusedError):
            directory.load_identity()
    directory.unlock()


def _is_same(damaged: bytes, facts: object) -> bool:
    try:
        return bool(json.loads(damaged) == facts)
    except ValueError:
        return False


def test_a_newer_identity_says_what_to_do(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "identity.json").write_text(json.dumps({"format": 2, "checksum": ""}))
    with pytest.raises(DataRefusedError, match="start a newer walrus-node"):
        directory.load_identity()
    directory.unlock()
