"""`AsyncWalrus`: the engine for an event loop.

Appends are awaited until they are as durable as the store's schedule says. The engine commits in its own threads, for
all who wait at once, and wakes the loop once for each commit; it never needs the interpreter lock for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from walrus_core._native import Completions, EntryBatch, Walrus

if TYPE_CHECKING:
    from typing_extensions import Buffer


class AsyncWalrus:
    """A `Walrus` for one event loop: the running one. Closing it leaves the `Walrus` open."""

    def __init__(self, walrus: Walrus) -> None:
        self._walrus = walrus
        self._loop = asyncio.get_running_loop()
        self._completions = Completions()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._loop.add_reader(self._completions.fileno(), self._complete)

    async def append(self, topic: str, data: Buffer) -> int:
        """See `Walrus.append`."""
        return (await self.append_many(topic, [data])).start

    async def append_many(self, topic: str, entries: Sequence[Buffer]) -> range:
        """See `Walrus.append_many`; at least one entry."""
        offsets, wait = self._walrus.submit(topic, entries, self._completions)
        await self._done(wait)
        return offsets

    async def append_packed(self, topic: str, data: Buffer, positions: Buffer) -> range:
        """See `Walrus.append_packed`; at least one entry."""
        offsets, wait = self._walrus.submit_packed(topic, data, positions, self._completions)
        await self._done(wait)
        return offsets

    async def append_once(
        self, topic: str, entries: Sequence[Buffer], *, producer: int, epoch: int = 0, sequence: int
    ) -> tuple[range, bool]:
        """See `Walrus.append_once`."""
        offsets, duplicate, wait = self._walrus.submit_once(
            topic, entries, self._completions, producer=producer, epoch=epoch, sequence=sequence
        )
        await self._done(wait)
        return offsets, duplicate

    async def wait_for(self, topic: str, offset: int) -> None:
        """Waits until the topic has an entry at an offset that can be read."""
        await self._done(self._walrus.expect(topic, offset, self._completions))

    async def read_batch(self, topic: str, bytes_max: int = 1 << 20, *, checkpoint: bool = True) -> EntryBatch:
        """Waits until the default cursor has an entry, then as `Walrus.read_batch`, in a thread."""
        while True:
            await self._done(self._walrus.expect(topic, None, self._completions))
            batch = await asyncio.to_thread(self._walrus.read_batch, topic, bytes_max, checkpoint=checkpoint)
            # Another reader of the cursor may have been faster.
            if len(batch):
                return batch

    def close(self) -> None:
        """Stops waiting: what was appended becomes durable all the same, but nobody is told."""
        self._loop.remove_reader(self._completions.fileno())
        for wait, waiting in self._waiting.items():
            self._completions.forget(wait)
            waiting.cancel()
        self._waiting.clear()

    async def __aenter__(self) -> AsyncWalrus:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        # A forked child that leaves the block of its parent shares its event loop, and has nothing to close.
        if not self._completions.is_forked:
            self.close()

    async def _done(self, wait: int | None) -> None:
        if wait is None:
            return
        waiting = self._waiting[wait] = self._loop.create_future()
        try:
            await waiting
        except asyncio.CancelledError:
            if self._waiting.pop(wait, None) is not None:
                self._completions.forget(wait)
            raise

    def _complete(self) -> None:
        for wait, error in self._completions.take():
            waiting = self._waiting.pop(wait, None)
            # A task that was cancelled a moment ago does not wait any more.
            if waiting is None or waiting.done():
                continue
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
