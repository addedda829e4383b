"""Why a node ends, and how fast: it is asked to, it is to start again, or it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from walrus_node.files import DataRefusedError

FAILED, DATA_REFUSED, PORT_IN_USE = 1, 3, 4

_RESTART_S = 0.5

Started = TypeVar("Started")


class StartError(Exception):
    """The node cannot run; the message is for its user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Ending:
    """The end of one node's life. Belongs to the event loop, but for `fail`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._requested = asyncio.Event()
        self._hurried = asyncio.Event()
        self._failures: list[StartError] = []
        self.starts_again = False

    def request(self) -> None:
        """End the node once it has handed over what it leads; asked again, it ends at once."""
        if self._requested.is_set():
            self._hurried.set()
        self._requested.set()

    def hurry(self) -> None:
        """End the node at once."""
        self._hurried.set()
        self._requested.set()

    def start_again(self) -> None:
        """End the node once the call that asks for it is answered, and have it started anew."""
        self.starts_again = True
        self._loop.call_later(_RESTART_S, self.hurry)

    def fail(self, error: Exception) -> None:
        """End the node, as its metadata cannot go on; thread-safe."""
        self._loop.call_soon_threadsafe(self._fail, error)

    async def wait(self, start: Coroutine[None, None, Started]) -> Started | None:
        """Start the node and wait for its end; a start that is not through by then is cancelled, and gives `None`.

        Raises what the start raised, or `StartError` where the node has failed since.
        """
        starting = self._loop.create_task(start)
        requested = self._loop.create_task(self._requested.wait())
        await asyncio.wait({starting, requested}, return_when=asyncio.FIRST_COMPLETED)
        started = None
        if starting.done():
            started = starting.result()
            await requested
        else:
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled():
                starting.result()
        self._raise_failure()
        return started

    async def unless_hurried(self, last: Coroutine[None, None, None]) -> None:
        """Do a last thing before the end, unless the node is to end at once: then it is not begun, or cancelled.

        Raises what it raised, or `StartError` where the node has failed meanwhile.
        """
        if self._hurried.is_set():
            last.close()
            return
        doing = self._loop.create_task(last)
        hurried = self._loop.create_task(self._hurried.wait())
        await asyncio.wait({doing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        doing.cancel()
        await asyncio.wait({doing})
        if not doing.cancelled():
            doing.result()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures[-1]

    def _fail(self, error: Exception) -> None:
        code = DATA_REFUSED if isinstance(error, DataRefusedError) else FAILED
        self._failures.append(StartError(f"the metadata cannot go on: {error}", code))
        self.hurry()
