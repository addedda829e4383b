"""A disk without space: the metadata lives on what it kept for itself, and takes it back when there is space again."""

import errno
import os
from pathlib import Path
from uuid import uuid4

import pytest
from members import cluster_of
from waiting import wait_until
from walrus_node.metadata.journal import Entry, Journal, Owner
from walrus_node.metadata.raft import Compaction
from walrus_node.metadata.reserve import Reserve
from walrus_node.metadata.store import Applied
from walrus_node.metadata.votes import Votes

MIB = 1 << 20
OWNER = Owner(uuid4(), uuid4())


class FullDisk:
    """Folders on a disk that is full: a write there takes from what the reserve gave up, and there is nothing else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder: Path | None = None
        self.free_bytes = 0
        self._pwrite, self._ftruncate, self._fallocate = os.pwrite, os.ftruncate, os.posix_fallocate
        monkeypatch.setattr("os.pwrite", self._write)
        monkeypatch.setattr("os.ftruncate", self._cut)
        monkeypatch.setattr("os.posix_fallocate", self._extend)

    def fill(self, folder: Path) -> None:
        self.folder = folder

    def _is_full(self, file: int) -> bool:
        return self.folder is not None and Path(f"/proc/self/fd/{file}").readlink().is_relative_to(self.folder)

    def _take(self, size: int) -> None:
        if size > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= size

    def _write(self, file: int, content: bytes, position: int) -> int:
        if self._is_full(file):
            self._take(len(content))
        return self._pwrite(file, content, position)

    def _cut(self, file: int, size: int) -> None:
        if self._is_full(file):
            self.free_bytes += os.fstat(file).st_size - size
        self._ftruncate(file, size)

    def _extend(self, file: int, start: int, size: int) -> None:
        if self._is_full(file):
            self._take(size)
        self._fallocate(file, start, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def test_the_journal_goes_on_until_the_reserve_is_spent_and_loses_nothing_then(tmp_path: Path, disk: FullDisk) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= MIB, "the space is really taken"
    Journal.create(tmp_path / "journal", OWNER, index=1, term=0)
    journal = Journal(tmp_path / "journal", OWNER, reserve)
    disk.fill(tmp_path)
    with pytest.raises(OSError, match="No space"):
        write_many(journal)
    count = len(journal) - 1
    assert 90 < count < 110
    assert reserve.held_bytes == 0
    journal.close()
    reserve.close()
    disk.folder = None
    again = Journal(tmp_path / "journal", OWNER)
    assert len(again) - 1 == count
    again.close()


def write_many(journal: Journal) -> None:
    for index in range(2, 1_000):
        journal.append(Entry(b"\x00" * 10_000, index, 1), commit=0)


def test_space_that_comes_back_is_the_reserves_first(tmp_path: Path, disk: FullDisk) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)
    disk.fill(tmp_path)
    with (tmp_path / "other").open("wb") as file:
        reserve.spend(lambda: os.pwrite(file.fileno(), b"what had no space", 0))
        disk.free_bytes = 0  # somebody else was quicker
        assert 0 < reserve.held_bytes < MIB
        reserve.refill()
        assert reserve.held_bytes < MIB
        disk.free_bytes = MIB
        reserve.refill()
        assert reserve.held_bytes == MIB
    reserve.close()


def test_an_error_that_is_not_about_space_costs_nothing(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        reserve.spend(fail)
    assert reserve.held_bytes == MIB
    reserve.close()


def test_votes_and_a_compaction_find_the_space_that_the_reserve_gives(tmp_path: Path, disk: FullDisk) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)
    Votes.create(tmp_path / "votes")
    Journal.create(tmp_path / "journal", OWNER, index=1, term=0)
    journal = Journal(tmp_path / "journal", OWNER, reserve)
    for index in range(2, 12):
        journal.append(Entry(b"\x00" * 1_000, index, 1), commit=0)
    disk.fill(tmp_path)
    journal.compact(index=5, term=1)
    assert journal.base.index == 5
    assert reserve.held_bytes < MIB
    journal.append(Entry(b"\x00", 12, 1), commit=0)
    journal.sync()
    journal.close()
    reserve.close()


def test_the_mark_behind_a_sync_finds_the_space_that_the_reserve_gives(tmp_path: Path, disk: FullDisk) -> None:
    """The disk took the record and was full at the mark that says that it is durable: the member stopped for good."""
    reserve = Reserve(tmp_path / "reserve", MIB)
    Journal.create(tmp_path / "journal", OWNER, index=1, term=0)
    journal = Journal(tmp_path / "journal", OWNER, reserve)
    disk.fill(tmp_path)
    journal.append(Entry(b"\x00", 2, 1), commit=0)
    disk.free_bytes = 0  # somebody else was quicker
    journal.sync()
    assert not journal.has_unsynced
    journal.close()
    disk.free_bytes = 0
    Journal(tmp_path / "journal", OWNER, reserve).close()
    reserve.close()


def test_a_compaction_without_space_leaves_the_journal_as_it_was_and_of_use(tmp_path: Path, disk: FullDisk) -> None:
    Journal.create(tmp_path / "journal", OWNER, index=1, term=0)
    journal = Journal(tmp_path / "journal", OWNER)
    journal.append(Entry(b"\x00a", 2, 1), commit=0)
    disk.fill(tmp_path)
    with pytest.raises(OSError, match="No space"):
        journal.compact(index=2, term=1)
    assert not (tmp_path / "journal.new").exists()
    disk.folder = None
    journal.append(Entry(b"\x00b", 3, 1), commit=0)
    journal.compact(index=2, term=1)
    assert [entry.index for entry in journal.entries(0)] == [2, 3]
    journal.close()


@pytest.mark.parametrize("which", ["follower", "leader"])
def test_a_member_whose_disk_is_full_stays_and_commits(
    tmp_path: Path, disk: FullDisk, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "walrus_node.metadata.reserve")
    compaction = Compaction(entries=64, entries_kept=16)
    with cluster_of(tmp_path, 3, compaction) as cluster:
        leader = cluster.leader()
        victim = leader if which == "leader" else cluster.followers()[0]
        disk.fill(victim.directory)
        for number in range(300):  # four compactions
            wait_until(
                "they commit",
                lambda number=number: isinstance(cluster.leader().write(f"{number}"), Applied),
                timeout_s=120.0,
            )
        wait_until("it has all", lambda: "299" in victim.running.read(), timeout_s=120.0)
        assert victim.running.status().failure is None
        assert "lives on its reserve" in caplog.text
        disk.folder = None
        wait_until("it has its reserve again", lambda: "has its reserve of space again" in caplog.text)
