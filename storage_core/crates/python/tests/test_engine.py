"""The engine through the binding; what it promises is tested in its own crate."""

import threading
from pathlib import Path

import pytest
import walrus_core

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}


@pytest.mark.parametrize("backend", ["auto", "mmap", "io_uring"])
@pytest.mark.parametrize("fsync", ["each", "20ms", "never"])
def test_what_was_appended_is_read_after_a_reopen(tmp_path: Path, backend: str, fsync: str) -> None:
    with walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync, **SMALL) as walrus:
        assert walrus.append_for_topic("t", b"first") == 0
        assert walrus.batch_append_for_topic("t", [b"second", bytearray(b"third"), b""]) == range(1, 4)
        assert walrus.read_next("t") == (0, b"first")
    with walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync) as walrus:
        assert walrus.topics() == ["t"]
        assert walrus.read_next("t", checkpoint=False) == (1, b"second")
        assert walrus.batch_read_for_topic("t", 1 << 20) == [(1, b"second"), (2, b"third"), (3, b"")]
        assert walrus.read_next("t") is None
        assert walrus.batch_read_for_topic("t", 1, start_offset=2) == [(2, b"third")]


def test_cursors_are_apart_and_remembered(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.batch_append_for_topic("t", [b"%d" % entry for entry in range(10)])
        fast, slow = walrus.cursor("t", "fast"), walrus.cursor("t", "slow")
        assert len(fast.batch_read(1 << 20)) == 10
        assert slow.read_next() == (0, b"0")
        slow.seek(7)
        with pytest.raises(walrus_core.OffsetOutOfRange) as raised:
            slow.seek(11)
        assert raised.value.facts == {"requested": 11, "start": 0, "end": 10}
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert walrus.cursor("t", "fast").position == 10
        assert walrus.cursor("t", "slow").read_next() == (7, b"7")
        assert (fast.name, slow.name) == ("fast", "slow")


def test_threads_append_and_read_at_once(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, fsync="never") as walrus:
        threads = [
            threading.Thread(target=lambda: [walrus.append_for_topic("t", b"x" * 100) for _ in range(500)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        offsets = [offset for offset, _ in iter(lambda: walrus.read_next("t"), None)]
        assert offsets == list(range(2000))


def test_a_deleted_topic_is_gone(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append_for_topic("t", b"x")
        assert walrus.delete_topic("t")
        assert not walrus.delete_topic("t")
        assert walrus.topics() == []
        assert walrus.read_next("t") is None


def test_wrong_calls_are_refused_with_their_facts(tmp_path: Path) -> None:
    with pytest.raises(walrus_core.RejectedError, match="is not each, never") as raised:
        walrus_core.Walrus.open(tmp_path, fsync="sometimes")
    assert (raised.value.reason, raised.value.facts["option"]) == ("InvalidOption", "fsync")
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        with pytest.raises(walrus_core.Locked):
            walrus_core.Walrus.open(tmp_path)
        with pytest.raises(walrus_core.RejectedError) as raised:
            walrus.append_for_topic("", b"x")
        assert raised.value.reason == "InvalidName"
        with pytest.raises(TypeError):
            walrus.append_for_topic("t", "text")  # type: ignore[arg-type]
    with pytest.raises(walrus_core.RejectedError) as raised:
        walrus.append_for_topic("t", b"x")
    assert raised.value.reason == "Closed"


def test_what_the_system_refuses_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    with pytest.raises(OSError, match="file") as raised:
        walrus_core.Walrus.open(tmp_path / "file" / "store")
    assert raised.value.errno


def test_a_newer_store_and_a_damaged_one_are_told_apart(tmp_path: Path) -> None:
    walrus_core.Walrus.open(tmp_path, **SMALL).close()
    manifest = next(path for path in tmp_path.rglob("MANIFEST"))
    good = manifest.read_bytes()
    manifest.write_bytes(good[:-1])
    with pytest.raises(walrus_core.CorruptionError) as raised:
        walrus_core.Walrus.open(tmp_path)
    assert raised.value.reason == "Damaged"
    manifest.write_bytes(good)
    walrus_core.Walrus.open(tmp_path).close()
