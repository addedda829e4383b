"""The engine through the binding; what it promises is tested in its own crate."""

import array
import ctypes
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walrus_core

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}
LONG = 120.0


@pytest.mark.parametrize("backend", ["auto", "mmap", "io_uring"])
@pytest.mark.parametrize("fsync", ["each", "20ms", "never"])
def test_what_was_appended_is_read_after_a_reopen(tmp_path: Path, backend: str, fsync: str) -> None:
    with walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync, **SMALL) as walrus:
        assert walrus.append("t", b"first") == 0
        assert walrus.append_many("t", [b"second", bytearray(b"third"), b""]) == range(1, 4)
        assert walrus.read_next("t") == (0, b"first")
        assert backend in ("auto", walrus.backend[0]) or walrus.backend[1]
        way, reason = walrus.synced_writes
        assert (way, reason is None) in (("direct", True), ("cached", False))
    with walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync) as walrus:
        assert walrus.topics() == ["t"]
        assert walrus.read_next("t", checkpoint=False) == (1, b"second")
        assert list(walrus.read_batch("t")) == [(1, b"second"), (2, b"third"), (3, b"")]
        assert walrus.read_next("t") is None
        assert list(walrus.read_batch("t", 1, start_offset=2)) == [(2, b"third")]


def test_entries_may_be_any_buffer(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append("t", memoryview(b"abcd")[1:3])
        walrus.append_many("t", [array.array("H", [1, 2]), memoryview(b"abcd")[::2]])
        assert [data for _, data in walrus.read_batch("t")] == [b"bc", b"\1\0\2\0", b"ac"]
        for wrong in ("text", 5, [1, 2], None):
            with pytest.raises(TypeError):
                walrus.append("t", wrong)  # type: ignore[arg-type]
        assert walrus.offsets("t") == range(3)


def test_packed_entries_lie_in_one_buffer(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        data, positions = b"..onetwo!", [2, 5, 5, 8]
        for typecode in "qilQIL":
            walrus.append_packed("t", data, array.array(typecode, positions))
        walrus.append_packed("t", bytearray(data), array.array("q", positions).tobytes())
        batch = walrus.read_batch("t")
        assert [entry for _, entry in batch] == [b"one", b"", b"two"] * 7
        assert walrus.append_packed("t", batch, batch.positions) == range(21, 42)
        assert walrus.append_packed("t", b"", array.array("q", [0])) == range(42, 42)
        wrong = [[], [0, 10], [-1, 2], [3, 2], [0, 1 << 40]]
        for each in wrong:
            with pytest.raises(ValueError, match="positions must rise"):
                walrus.append_packed("t", data, array.array("q", each))
        with pytest.raises(ValueError, match="64 bit"):
            walrus.append_packed("t", data, b"12345")
        with pytest.raises(walrus_core.RejectedError):
            walrus.append_packed("t", b"", array.array("q", [0] * 2002))
        with pytest.raises(ValueError, match="positions must rise"):
            walrus.append_packed("t", data, array.array("Q", [0, 1 << 63]))
        assert walrus.offsets("t") == range(42)


@pytest.mark.parametrize(
    "positions",
    [
        array.array("h", [0, 0, 0, 0, 3, 0, 0, 0]),
        array.array("H", [0, 0, 0, 0, 3, 0, 0, 0]),
        array.array("d", [0.0, 5e-324]),
        array.array("f", [0.0, 0.0]),
        memoryview(bytes(8)).cast("?"),
        [0, 3],
        3,
    ],
    ids=["i16", "u16", "f64", "f32", "bool", "list", "int"],
)
def test_positions_of_another_kind_are_refused_not_misread(tmp_path: Path, positions: Any) -> None:
    """Their bytes were taken for 64 bit integers: one entry was stored, or none, of what lay somewhere else."""
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        with pytest.raises(TypeError):
            walrus.append_packed("t", b"onetwo", positions)
        assert walrus.topics() == []


def test_positions_may_lie_at_any_address(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        odd = memoryview(b"." + array.array("q", [0, 3, 6]).tobytes())[1:].cast("q")
        assert walrus.append_packed("t", b"onetwo", odd) == range(2)
        assert [entry for _, entry in walrus.read_batch("t")] == [b"one", b"two"]


def test_a_batch_is_one_buffer_with_its_places(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append_many("t", [b"one", b"", b"three"])
        batch = walrus.read_batch("t")
        positions = memoryview(batch.positions).cast("q").tolist()
        assert (bytes(batch), positions) == (b"onethree", [0, 3, 3, 8])
        assert memoryview(batch.offsets).cast("q").tolist() == [0, 1, 2]
        assert all(at > 1e12 for at in memoryview(batch.timestamps_ms).cast("q"))
        assert (len(batch), batch[0], batch[-1], batch.next_offset) == (3, (0, b"one"), (2, b"three"), 3)
        with pytest.raises(IndexError):
            batch[3]
        view = memoryview(batch)
        assert view.readonly
        del batch
        assert bytes(view) == b"onethree", "a view keeps its batch"
        empty = walrus.read_batch("t")
        assert (len(empty), bytes(empty), list(empty), empty.next_offset) == (0, b"", [], None)


def test_cursors_are_apart_and_remembered(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append_many("t", [b"%d" % entry for entry in range(10)])
        fast, slow = walrus.cursor("t", "fast"), walrus.cursor("t", "slow")
        assert len(fast.read_batch()) == 10
        assert slow.read_next() == (0, b"0")
        slow.seek(7)
        assert (slow.unread, walrus.unread("t"), walrus.unread("none")) == (3, 10, 0)
        with pytest.raises(walrus_core.OffsetOutOfRange) as raised:
            slow.seek(11)
        assert raised.value.facts == {"requested": 11, "start": 0, "end": 10}
        assert walrus.cursors("t") == {"fast": 10, "slow": 7}
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert walrus.cursor("t", "fast").position == 10
        assert walrus.cursor("t", "slow").read_next() == (7, b"7")
        assert (fast.name, slow.name) == ("fast", "slow")
        walrus.delete_cursor("t", "slow")
        assert (walrus.cursors("t"), walrus.cursors("none")) == ({"fast": 10}, {})


def test_a_lazy_cursor_is_stored_when_asked_and_at_close(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, persist_every=100, **SMALL) as walrus:
        walrus.append_many("t", [b"x"] * 10)
        cursor = walrus.cursor("t", "c")
        cursor.read_next()
        assert walrus.cursors("t") == {}
        cursor.persist()
        assert walrus.cursors("t") == {"c": 1}
        cursor.read_next()
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert walrus.cursors("t") == {"c": 2}


def test_namespaces_are_apart(tmp_path: Path) -> None:
    for key in ("a/b", "a_b", ".."):
        with walrus_core.Walrus.open(tmp_path, key=key, **SMALL) as walrus:
            walrus.append("t", key.encode())
    for key in ("a/b", "a_b", ".."):
        with walrus_core.Walrus.open(tmp_path, key=key) as walrus:
            assert list(walrus.read_batch("t")) == [(0, key.encode())]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_compaction_keeps_the_last_entry_of_each_key(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        assert walrus.compact("none") == (0, 0)
        for number in range(100):
            walrus.append_keyed("t", b"a", b"%d" % number * 400)
        walrus.append_keyed("t", bytearray(b"gone"), None)
        walrus.append_many("t", [b"x" * 1000] * 100)  # what is being filled is not compacted
        records, given_back = walrus.compact("t")
        assert records == 99
        assert given_back > 50_000
        batch = walrus.read_batch("t", 1 << 20, start_offset=0)
        assert batch.entry_keys == [b"a", b"gone", *[None] * 100]
        assert (batch[0], batch[1]) == ((99, b"99" * 400), (100, b""))
        assert walrus.compact("t", tombstone_delay_s=0.0)[0] == 1
        with pytest.raises(ValueError, match="tombstone_delay_s"):
            walrus.compact("t", tombstone_delay_s=-1.0)


def test_a_topic_forgets_what_it_may(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        assert walrus.trim("none", 0) == (0, "nothing")
        walrus.append_many("t", [b"x" * 100] * 10)
        size = walrus.size_bytes("t")
        assert 1000 < size < 2000
        assert walrus.trim("t", 4) == (4, "trim")
        walrus.set_retention("t", pinned_by=["slow"])
        walrus.cursor("t", "slow").seek(6)
        assert walrus.trim("t", 8) == (6, "held by slow")
        assert walrus.offsets("t") == range(6, 10)
        with pytest.raises(walrus_core.OffsetOutOfRange):
            walrus.trim("t", 11)


def test_a_topic_is_clean_until_it_is_appended_to(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append("t", b"")
        assert not walrus.is_clean("t")
        walrus.mark_clean("t")
        assert walrus.is_clean("t")
        walrus.mark_dirty("t")
        assert not walrus.is_clean("t")


def test_threads_append_and_read_at_once(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, fsync="never") as walrus:
        threads = [
            threading.Thread(target=lambda: [walrus.append("t", b"x" * 100) for _ in range(500)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        offsets = [offset for offset, _ in iter(lambda: walrus.read_next("t"), None)]
        assert offsets == list(range(2000))


def test_a_wait_lets_others_run_and_ends_with_data(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        assert not walrus.wait("t", 0)
        found: list[bool] = []
        threads = [threading.Thread(target=lambda: found.append(walrus.wait("t", LONG))) for _ in range(3)]
        for thread in threads:
            thread.start()
        walrus.append("t", b"x")
        for thread in threads:
            thread.join()
        assert found == [True] * 3
        with pytest.raises(ValueError, match="no time"):
            walrus.wait("t", -1)


def test_the_engine_commits_while_the_interpreter_lock_is_held(tmp_path: Path) -> None:
    """A busy Python thread holds the lock for as long as it likes: here one call of C that keeps it."""
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        completions = walrus_core.Completions()
        waits = [walrus.submit("t", [b"%d" % entry], completions)[1] for entry in range(50)]
        assert readable_while_holding_the_lock(completions.fileno())
        pending = {wait for wait in waits if wait is not None}
        while pending:
            for wait, error in completions.take():
                assert error is None
                pending.remove(wait)
            assert not pending or readable_while_holding_the_lock(completions.fileno())
        assert len(walrus.read_batch("t")) == 50


def readable_while_holding_the_lock(descriptor: int) -> bool:
    class PollFd(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))

    polled = PollFd(descriptor, select.POLLIN, 0)
    # Calls of a `PyDLL` keep the lock, those of a `CDLL` do not.
    return bool(ctypes.PyDLL(None).poll(ctypes.byref(polled), 1, int(LONG * 1000)) == 1)


def test_a_refused_append_makes_no_topic(tmp_path: Path) -> None:
    """It left an empty topic of its name behind, durably."""
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        completions = walrus_core.Completions()
        many, huge = [b""] * 2001, bytes(1 << 20)
        appends: list[Callable[[], object]] = [
            lambda: walrus.append("t", huge),
            lambda: walrus.append_keyed("t", b"key", huge),
            lambda: walrus.submit_packed("t", huge, array.array("q", [0, len(huge)]), completions),
        ]
        appends_of_many = [
            lambda: walrus.append_many("t", many),
            lambda: walrus.append_packed("t", b"", array.array("q", [0] * 2002)),
            lambda: walrus.submit("t", many, completions),
        ]
        for refused, reason in [(appends, "TooLarge"), (appends_of_many, "TooManyEntries")]:
            for append in refused:
                with pytest.raises(walrus_core.RejectedError) as raised:
                    append()
                assert raised.value.reason == reason
        with pytest.raises(walrus_core.InvalidBatch):
            walrus.submit("t", [], completions)
        assert walrus.append_many("t", []) == range(0)
        assert walrus.topics() == []


def test_what_a_producer_sends_again_is_stored_once(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append("t", b"another's")
        assert walrus.append_once("t", [b"a", bytearray(b"b")], producer=7, sequence=0) == (range(1, 3), False)
        assert walrus.append_once("t", [b"a", b"b"], producer=7, sequence=0) == (range(1, 3), True)
        with pytest.raises(walrus_core.InvalidBatch):
            walrus.append_once("new", [b"x"], producer=-1, sequence=0)
        with pytest.raises(walrus_core.RejectedError) as raised:
            walrus.append_once("new", [bytes(1 << 20)], producer=7, sequence=0)
        assert (raised.value.reason, walrus.topics()) == ("TooLarge", ["t"])
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert walrus.append_once("t", [b"a", b"b"], producer=7, sequence=0) == (range(1, 3), True)
        with pytest.raises(walrus_core.RejectedError) as raised:
            walrus.append_once("t", [b"x"], producer=7, sequence=3)
        assert raised.value.reason == "OutOfOrderSequence"
        assert raised.value.facts == {"producer": 7, "expected": 2, "got": 3}
        assert walrus.append_once("t", [b"c"], producer=7, epoch=1, sequence=0) == (range(3, 4), False)
        with pytest.raises(walrus_core.RejectedError) as raised:
            walrus.append_once("t", [b"x"], producer=7, sequence=2)
        assert raised.value.reason == "ProducerFenced"
        assert [data for _, data in walrus.read_batch("t")] == [b"another's", b"a", b"b", b"c"]


def test_a_wait_makes_no_topic_and_ends_with_the_first_entry_of_one(tmp_path: Path) -> None:
    """A wait made misspelt topics, and everything else that names one did, too."""
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        assert not walrus.wait("mispelt", 0)
        completions = walrus_core.Completions()
        waits = {walrus.expect("t", 1, completions), walrus.expect("t", None, completions)}
        said: list[Callable[[], object]] = [
            lambda: walrus.cursor("mispelt", "c"),
            lambda: walrus.mark_clean("mispelt"),
            lambda: walrus.mark_dirty("mispelt"),
            lambda: walrus.set_retention("mispelt", bytes=1),
        ]
        for say in said:
            with pytest.raises(walrus_core.RejectedError, match="there is no topic") as raised:
                say()
            assert (raised.value.reason, raised.value.facts) == ("UnknownTopic", {"name": "mispelt"})
        assert walrus.topics() == []
        walrus.append_many("t", [b"a", b"b"])
        while waits:
            assert readable_while_holding_the_lock(completions.fileno())
            for wait, error in completions.take():
                assert error is None
                waits.remove(wait)
        walrus.make_topic("made")
        walrus.make_topic("t")
        assert (walrus.topics(), walrus.offsets("t")) == (["made", "t"], range(2))


@pytest.mark.parametrize("copying", ["an entry of a batch", "an iteration", "a buffer that is not bytes"])
def test_other_threads_run_while_much_is_copied(tmp_path: Path, copying: str) -> None:
    """A 200 MB `read_next` held up all other threads for as long as its copy took."""
    with walrus_core.Walrus.open(tmp_path, fsync="never") as walrus:
        walrus.append("t", bytes(32 << 20))
        batch, mutable = walrus.read_batch("t"), bytearray(32 << 20)

        def copy() -> None:
            if copying == "an entry of a batch":
                batch[0]
            elif copying == "an iteration":
                next(iter(batch))
            else:
                # Is refused as soon as the data is copied, and waits for nothing else.
                with pytest.raises(ValueError, match="64 bit"):
                    walrus.append_packed("t", mutable, b"12345")

        assert runs_beside(copy), "another thread gets the interpreter lock during the copy"


def runs_beside(work: Callable[[], None]) -> bool:
    """Whether another thread ever runs while this one works. None interrupts this one here: the lock must be given up.

    Whether the other thread wakes up in time is the system's to say, so it has many chances.
    """
    ended, steps = threading.Event(), 0

    def other() -> None:
        nonlocal steps
        while not ended.wait(0.0001):
            steps += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(200):
            before = steps
            work()
            if steps > before:
                return True
        return False
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        thread.join()


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    walrus = walrus_core.Walrus.open(tmp_path, key="shop", backend="mmap", **SMALL)
    walrus.append_many("t", [b"one", b"three"])
    cursor, batch = walrus.cursor("t", "c"), walrus.read_batch("t")
    cursor.seek(1)
    assert repr(walrus) == f'<Walrus "{tmp_path}", key "shop": 1 topics, mmap>'
    assert repr(cursor) == '<Cursor "c" of "t" at 1>'
    assert repr(batch) == "<EntryBatch of 2 entries, offsets 0 to 1, 8 bytes>"
    assert repr(walrus.read_batch("t")) == "<EntryBatch of 0 entries>"
    assert repr(walrus_core.Completions()) == "<Completions: 0 waits>"
    walrus.close()
    assert repr(walrus) == f'<Walrus "{tmp_path}", key "shop": the store is closed>'
    assert repr(cursor) == '<Cursor "c" of "t", which cannot be used here any more>'


def test_a_deleted_topic_is_gone(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append("t", b"x")
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
            walrus.append("", b"x")
        assert raised.value.reason == "InvalidName"
    with pytest.raises(walrus_core.RejectedError) as raised:
        walrus.append("t", b"x")
    assert raised.value.reason == "Closed"


def test_what_the_system_refuses_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    with pytest.raises(OSError, match="file") as raised:
        walrus_core.Walrus.open(tmp_path / "file" / "store")
    assert raised.value.errno


def test_a_damaged_manifest_costs_nothing_and_is_made_again(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as store:
        store.append("t", b"x")
    manifest = next(path for path in tmp_path.rglob("MANIFEST"))
    good = manifest.read_bytes()
    for damaged in (good[:-1], b"", bytes([good[0] ^ 1]) + good[1:]):
        manifest.write_bytes(damaged)
        with walrus_core.Walrus.open(tmp_path) as store:
            assert store.topics() == ["t"]
        assert manifest.read_bytes() == good
