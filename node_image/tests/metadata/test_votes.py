"""A vote is on disk before it is given, and a damaged one refuses the start."""

from pathlib import Path
from uuid import uuid4

import pytest
from walrus_node.files import DataRefusedError
from walrus_node.metadata.votes import Votes


def test_a_vote_survives(tmp_path: Path) -> None:
    path = tmp_path / "votes"
    Votes.create(path)
    voted_for = uuid4()
    Votes(path).record(7, voted_for)
    assert (Votes(path).term, Votes(path).voted_for) == (7, voted_for)


def test_nobody_was_voted_for_at_first(tmp_path: Path) -> None:
    path = tmp_path / "votes"
    Votes.create(path)
    assert (Votes(path).term, Votes(path).voted_for) == (0, None)


def test_every_damaged_byte_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "votes"
    Votes.create(path)
    Votes(path).record(7, uuid4())
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(DataRefusedError, match="give it an empty data directory"):
            Votes(path)


def test_a_missing_or_short_file_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "votes"
    with pytest.raises(DataRefusedError, match="is missing"):
        Votes(path)
    path.write_bytes(b"WALRUSMV")
    with pytest.raises(DataRefusedError, match="is damaged"):
        Votes(path)
