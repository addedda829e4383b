"""A store belongs to the process that opened it.

A forked child has the memory of the store without its threads, and shares its files: an append there was acknowledged
and overwrote records of the parent, a child that merely left a `with` wrote a stale page of the journal, and the store
did not open again; or the child hung.
"""

import asyncio
import json
import os
import select
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import walrus_core
from walrus_core.aio import AsyncWalrus

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}
LONG_S = 60.0
BACKENDS = ["mmap", "direct", "io_uring"]


def in_child(work: Callable[[], object]) -> int:
    """Forks, works in the child, and gives its exit code: 0 after the work, 1 after an error. Kills one that hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:  # a child must not go on as its parent
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    return exit_code(child)


def exit_code(child: int) -> int:
    """Waits for a child; one that has not ended in time hangs, and is killed."""
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], LONG_S)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(walrus_core.RejectedError, match="before this process was forked") as raised:
        call()
    assert raised.value.reason == "Forked"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fsync", ["each", "never"])
def test_every_call_of_a_child_is_refused_and_the_parent_goes_on(tmp_path: Path, backend: str, fsync: str) -> None:
    walrus = walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync, **SMALL)
    walrus.append_many("t", [b"before"] * 3)
    cursor = walrus.cursor("t", "c")
    completions = walrus_core.Completions()

    def child() -> None:
        for call in (
            lambda: walrus.append("t", b"child"),
            lambda: walrus.append("new", b"child"),
            lambda: walrus.append_many("t", [b"child"]),
            lambda: walrus.append_packed("t", b"", bytes(8)),
            lambda: walrus.append_keyed("t", b"k", b"child"),
            lambda: walrus.submit("t", [b"child"], completions),
            lambda: walrus.submit_packed("t", b"", bytes(8), completions),
            lambda: walrus.append_once("t", [b"child"], producer=1, sequence=0),
            lambda: walrus.submit_once("t", [b"child"], completions, producer=1, sequence=0),
            lambda: walrus.expect("t", 0, completions),
            lambda: walrus.read_next("t"),
            lambda: walrus.read_next("t", checkpoint=False),
            lambda: walrus.read_batch("t"),
            lambda: walrus.read_batch("t", start_offset=0),
            lambda: walrus.wait("t", LONG_S),
            lambda: walrus.cursor("t", "c"),
            lambda: walrus.cursors("t"),
            lambda: walrus.delete_cursor("t", "c"),
            lambda: walrus.topics(),
            lambda: walrus.make_topic("t"),
            lambda: walrus.delete_topic("t"),
            lambda: walrus.offsets("t"),
            lambda: walrus.unread("t"),
            lambda: walrus.size_bytes("t"),
            lambda: walrus.mark_clean("t"),
            lambda: walrus.mark_dirty("t"),
            lambda: walrus.is_clean("t"),
            lambda: walrus.set_retention("t", bytes=1),
            lambda: walrus.compact("t"),
            lambda: walrus.trim("t", 1),
            lambda: walrus.recovery(),
            lambda: walrus.backend,
            lambda: walrus.close(),
            lambda: cursor.position,
            lambda: cursor.unread,
            lambda: cursor.read_next(),
            lambda: cursor.read_batch(),
            lambda: cursor.seek(1),
            lambda: cursor.persist(),
            lambda: cursor.wait(LONG_S),
            lambda: completions.fileno(),
            lambda: completions.forget(1),
            lambda: completions.take(),
        ):
            refused(call)

    assert in_child(child) == 0
    assert cursor.read_next() == (0, b"before")
    assert walrus.append("t", b"after") == 3
    walrus.close()
    with walrus_core.Walrus.open(tmp_path, backend=backend, fsync=fsync) as again:
        assert [data for _, data in again.read_batch("t")] == [b"before"] * 3 + [b"after"]
        assert again.topics() == ["t"]


def contents(directory: Path) -> dict[str, bytes]:
    """All files but the one that a thread of the parent makes ready meanwhile, for the next open."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "journal.spare"}


@pytest.mark.parametrize("way", ["with", "drop", "exit in with", "exception in with"])
def test_a_child_that_lets_go_of_its_copy_writes_nothing(tmp_path: Path, way: str) -> None:
    with walrus_core.Walrus.open(tmp_path, backend="mmap", **SMALL) as walrus:
        walrus.append("t", b"before")
        holder = [walrus, walrus.cursor("t", "c")]
        del walrus

        def child() -> None:
            if way == "drop":
                holder.clear()
                return
            with holder[0]:
                if way == "exit in with":
                    sys.exit(0)
                if way == "exception in with":
                    raise SystemExit(0)

        at_fork = contents(tmp_path)
        assert in_child(child) == 0
        assert contents(tmp_path) == at_fork
        assert holder[0].append("t", b"after") == 1
    with walrus_core.Walrus.open(tmp_path) as again:
        assert [data for _, data in again.read_batch("t")] == [b"before", b"after"]


def test_a_child_that_outlives_its_parent_does_not_keep_the_store_locked(tmp_path: Path) -> None:
    """The lock was inherited: after the parent's death its restart said for as long as any worker lived that the store
    is in use."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(reading)
        walrus = walrus_core.Walrus.open(tmp_path, **SMALL)
        walrus.append("t", b"before")
        child = os.fork()
        if child == 0:
            threading.Event().wait()
        os.write(writing, child.to_bytes(8, "little"))
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        child = int.from_bytes(pipe.read(8), "little")
    os.waitpid(parent, 0)
    try:
        with walrus_core.Walrus.open(tmp_path) as walrus:
            assert walrus.read_next("t") == (0, b"before")
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_parent_still_holds_its_lock_after_a_child_has_ended(tmp_path: Path) -> None:
    with walrus_core.Walrus.open(tmp_path, **SMALL):
        assert in_child(lambda: None) == 0
        with pytest.raises(walrus_core.Locked):
            walrus_core.Walrus.open(tmp_path)


def test_a_child_opens_a_store_of_its_own_and_its_children_are_refused(tmp_path: Path) -> None:
    walrus = walrus_core.Walrus.open(tmp_path / "parent", **SMALL)

    def child() -> None:
        with walrus_core.Walrus.open(tmp_path / "child", **SMALL) as own:
            own.append("t", b"child's")
            assert in_child(lambda: refused(lambda: own.append("t", b"grandchild's"))) == 0
            assert own.append("t", b"child's") == 1
        refused(lambda: walrus.append("t", b"child's"))

    assert in_child(child) == 0
    walrus.close()
    with walrus_core.Walrus.open(tmp_path / "child") as own:
        assert own.offsets("t") == range(2)


def test_the_threads_of_stores_that_children_open_are_woken(tmp_path: Path) -> None:
    """Waiting threads lay in one table of the process: a child inherited the entries of its parent's threads, its own
    took their stacks, and now and then one of them was never woken, so that the child waited for its end for ever."""
    waiting = [walrus_core.Walrus.open(tmp_path / f"parent-{number}", **SMALL) for number in range(6)]

    def child() -> None:
        for number in range(4):
            with walrus_core.Walrus.open(tmp_path / f"child-{number}", **SMALL) as own:
                own.append("t", b"child's")

    assert [in_child(child) for _ in range(25)] == [0] * 25
    for walrus in waiting:
        walrus.close()


def test_an_event_loop_of_a_child_is_told_and_its_parent_misses_nothing(tmp_path: Path) -> None:
    """The pipe that wakes the loop and the epoll descriptor of the loop are shared: a child that closed its
    `AsyncWalrus` made the parent's loop deaf, one that took a completion left the parent waiting for it."""

    async def run(walrus: walrus_core.Walrus) -> None:
        async with AsyncWalrus(walrus) as log:
            await log.append("t", b"before")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for call in (
                        lambda: log.append("t", b"child").send(None),
                        lambda: log.append_packed("t", b"", bytes(16)).send(None),
                        lambda: log.wait_for("t", 0).send(None),
                        lambda: log.read_batch("t").send(None),
                        log.close,
                        log._complete,
                    ):
                        refused(call)
                    with pytest.raises(StopIteration):
                        log.__aexit__(None, None, None).send(None)
                    code = 0
                finally:
                    os._exit(code)
            assert exit_code(child) == 0
            await asyncio.wait_for(log.append("t", b"after"), LONG_S)
            assert len(await log.read_batch("t")) == 2

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        asyncio.run(run(walrus))


def test_the_broker_refuses_every_call_of_a_child_and_goes_on(tmp_path: Path) -> None:
    """A child has none of the broker's threads: it would wait for their answers, or for their end, for ever."""
    identity = {name: str(uuid.uuid4()) for name in ("cluster_id", "disk", "process")}
    plane = walrus_core.DataPlane(json.dumps({"data_dir": str(tmp_path), "node_id": 1, **identity}))
    metadata = walrus_core.Metadata()

    def child() -> None:
        for call in (
            plane.addresses,
            plane.identity,
            plane.store_report,
            lambda: plane.publish(metadata),
            lambda: plane.set_raft_status("{}"),
            lambda: plane.poll_events(1, 60_000),
            lambda: plane.complete(1, "{}"),
            lambda: plane.configure("{}"),
            lambda: plane.test_control("sync_leases"),
            plane.copies_not_whole,
            lambda: plane.open_behind(60_000),
            plane.remains,
            plane.prometheus,
            lambda: plane.stop(1000),
        ):
            refused(call)
        assert repr(plane) == "<DataPlane of another process>"

    def dropping() -> None:
        nonlocal plane
        del plane

    for work in (child, dropping):
        assert in_child(work) == 0
    assert plane.identity().items() >= identity.items()
    assert repr(plane).startswith("<DataPlane of node 1: grpc 127.0.0.1:")
    plane.stop(1000)


@pytest.mark.parametrize("moment", ["append", "read", "close"])
def test_a_fork_in_the_middle_of_a_call_of_another_thread_hangs_no_child(tmp_path: Path, moment: str) -> None:
    walrus = walrus_core.Walrus.open(tmp_path, **SMALL)
    walrus.append_many("t", [b"entry"] * 100)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            walrus.append_many("t", [b"entry"] * 10) if moment != "read" else walrus.read_batch("t", checkpoint=False)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: refused(walrus.topics)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    end = walrus.offsets("t").stop
    if moment == "close":
        closing = threading.Thread(target=walrus.close)
        closing.start()
        codes = [in_child(lambda: refused(walrus.topics)) for _ in range(5)]
        closing.join()
        assert codes == [0] * 5
    walrus.close()
    with walrus_core.Walrus.open(tmp_path) as again:
        assert again.offsets("t") == range(end)


def test_the_ports_of_a_front_are_the_parents_and_serve_on(tmp_path: Path) -> None:
    request = b"GET / HTTP/1.1\r\n\r\n"
    path = str(tmp_path / "http")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        server.settimeout(LONG_S)
        port = {"address": "127.0.0.1:0", "socket": path, "protocol": "http1"}
        fronts = [walrus_core.Front(json.dumps({"ports": {"http": port}}))]

        def child() -> None:
            refused(lambda: fronts[0].addresses())
            refused(lambda: fronts[0].stop())
            fronts.clear()

        assert in_child(child) == 0
        host, _, number = fronts[0].addresses()["http"].rpartition(":")
        with socket.create_connection((host, int(number)), LONG_S) as client:
            client.sendall(request)
            with server.accept()[0] as passed:
                assert passed.recv(100) == request
        fronts[0].stop()
