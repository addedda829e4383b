"""The store of a node that stands still, seen without its lock."""

from pathlib import Path

from chaos.damage import lose_end, unlocked


def test_all_but_the_lock_is_there_and_what_is_written_goes_to_the_store(tmp_path: Path) -> None:
    """They were symbolic links, which a store refuses: no rot was ever looked for in a node that runs."""
    log = tmp_path / "log"
    log.mkdir()
    for name in ("LOCK", "MANIFEST", "00000001.wal"):
        (log / name).write_bytes(b"before")
    with unlocked(log) as store:
        assert sorted(path.name for path in store.iterdir()) == ["00000001.wal", "MANIFEST"]
        assert not any(path.is_symlink() for path in store.iterdir())
        (store / "00000001.wal").write_bytes(b"after")
    assert (log / "00000001.wal").read_bytes() == b"after"
    assert (log / "LOCK").exists()


def test_of_a_journal_that_loses_its_end_the_first_half_stays(tmp_path: Path) -> None:
    (tmp_path / "journal-00000001").write_bytes(b"older")
    (tmp_path / "journal-00000002").write_bytes(b"x" * 100 + bytes(28))
    (tmp_path / "journal.spare").write_bytes(b"spare")
    lose_end(tmp_path)
    assert (tmp_path / "journal-00000002").read_bytes() == b"x" * 50 + bytes(78)
    assert (tmp_path / "journal-00000001").read_bytes() == b"older"
