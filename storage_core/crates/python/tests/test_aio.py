"""The engine for event loops."""

import array
import asyncio
from pathlib import Path

import pytest
import walrus_core
from walrus_core.aio import AsyncWalrus

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}


@pytest.mark.parametrize("fsync", ["each", "never"])
def test_many_tasks_append_at_once_and_each_gets_its_offset(tmp_path: Path, fsync: str) -> None:
    async def run(walrus: walrus_core.Walrus) -> list[int]:
        async with AsyncWalrus(walrus) as log:
            return await asyncio.gather(*(log.append("t", b"%d" % entry) for entry in range(300)))

    with walrus_core.Walrus.open(tmp_path, fsync=fsync, **SMALL) as walrus:
        offsets = asyncio.run(run(walrus))
        assert sorted(offsets) == list(range(300))
        entries = dict(walrus.read_batch("t"))
        assert [entries[offset] for offset in offsets] == [b"%d" % entry for entry in range(300)]


def test_a_reader_gets_what_a_writer_appends_later(tmp_path: Path) -> None:
    async def run(walrus: walrus_core.Walrus) -> list[bytes]:
        async with AsyncWalrus(walrus) as log:
            seen: list[bytes] = []

            async def read() -> None:
                while len(seen) < 20:
                    seen.extend(data for _, data in await log.read_batch("t"))

            reading = asyncio.create_task(read())
            for entry in range(0, 20, 4):
                await log.append_many("t", [b"%d" % entry, b"%d" % (entry + 1)])
                await log.append_packed("t", b"%d%d" % (entry + 2, entry + 3), packed_positions(entry))
            await reading
            return seen

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        assert asyncio.run(run(walrus)) == [b"%d" % entry for entry in range(20)]


def packed_positions(entry: int) -> bytes:
    first = len(str(entry + 2))
    return array.array("q", [0, first, first + len(str(entry + 3))]).tobytes()


def test_a_task_that_was_cancelled_disturbs_nobody(tmp_path: Path) -> None:
    async def run(walrus: walrus_core.Walrus) -> None:
        async with AsyncWalrus(walrus) as log:
            waiting = asyncio.create_task(log.wait_for("t", 5))
            await asyncio.sleep(0)
            waiting.cancel()
            assert await log.append_many("t", [b""] * 10) == range(10)
            await log.wait_for("t", 5)
            with pytest.raises(asyncio.CancelledError):
                await waiting

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        asyncio.run(run(walrus))


def test_a_task_may_send_again(tmp_path: Path) -> None:
    async def run(walrus: walrus_core.Walrus) -> None:
        async with AsyncWalrus(walrus) as log:
            sent = [await log.append_once("t", [b"a", b"b"], producer=7, sequence=0) for _ in range(2)]
            assert sent == [(range(2), False), (range(2), True)]

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        asyncio.run(run(walrus))
        assert walrus.offsets("t") == range(2)


def test_a_wait_that_was_cancelled_is_forgotten(tmp_path: Path) -> None:
    """Each left a future here, an arrival that kept the store open, and a waker in its log, until an entry came."""

    async def run(walrus: walrus_core.Walrus) -> None:
        async with AsyncWalrus(walrus) as log:
            for _ in range(10):
                waits = [asyncio.create_task(log.wait_for(topic, 5)) for topic in ("t", "none") for _ in range(500)]
                await asyncio.sleep(0)
                assert repr(log._completions) == "<Completions: 1000 waits>"
                for waiting in waits:
                    waiting.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
            assert log._waiting == {}
            assert repr(log._completions) == "<Completions: 0 waits>"
            closing = asyncio.create_task(log.wait_for("t", 5))
            await asyncio.sleep(0)
        assert repr(log._completions) == "<Completions: 0 waits>"
        with pytest.raises(asyncio.CancelledError):
            await closing

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append("t", b"")
        asyncio.run(run(walrus))


def test_a_forgotten_wait_keeps_no_store_open(tmp_path: Path) -> None:
    completions = walrus_core.Completions()
    walrus = walrus_core.Walrus.open(tmp_path, **SMALL)
    walrus.append("t", b"")
    waits = [walrus.expect(topic, 5, completions) for topic in ("t", "none")]
    del walrus
    with pytest.raises(walrus_core.Locked):
        walrus_core.Walrus.open(tmp_path)
    for wait in waits:
        assert wait is not None
        completions.forget(wait)
    with walrus_core.Walrus.open(tmp_path) as again:
        assert again.offsets("t") == range(1)


def test_who_waits_is_told_when_the_topic_goes(tmp_path: Path) -> None:
    async def run(walrus: walrus_core.Walrus) -> None:
        async with AsyncWalrus(walrus) as log:
            waiting = asyncio.create_task(log.wait_for("t", 5))
            await log.append("t", b"")
            walrus.delete_topic("t")
            with pytest.raises(walrus_core.RejectedError) as raised:
                await waiting
            assert raised.value.reason == "UnknownLog"

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        asyncio.run(run(walrus))


def test_a_closed_one_lets_go_of_its_tasks(tmp_path: Path) -> None:
    async def run(walrus: walrus_core.Walrus) -> None:
        log = AsyncWalrus(walrus)
        waiting = asyncio.create_task(log.wait_for("t", 0))
        await asyncio.sleep(0)
        log.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        asyncio.run(run(walrus))
        assert walrus.append("t", b"still open") == 0
