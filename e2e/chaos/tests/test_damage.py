"""The store of a node that stands still, seen without its lock."""

from pathlib import Path

from chaos.damage import unlocked


def test_all_but_the_lock_is_there_and_what_is_written_goes_to_the_store(tmp_path: Path) -> None:
    for name in ("LOCK", "MANIFEST", "00000001.wal"):
        (tmp_path / name).write_bytes(b"before")
    with unlocked(tmp_path) as store:
        assert sorted(path.name for path in store.iterdir()) == ["00000001.wal", "MANIFEST"]
        (store / "00000001.wal").write_bytes(b"after")
    assert (tmp_path / "00000001.wal").read_bytes() == b"after"
    assert (tmp_path / "LOCK").exists()
