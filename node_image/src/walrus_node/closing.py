"""What a node has opened, and closes when it ends: the newest first, in less than two seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

log = logging.getLogger(__name__)

_STOP_MAX_S = 1.8


class Closing:
    """A list of what is to be closed. Whatever is opened is added at once, so that a start that fails closes it too."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], Awaitable[None] | None]] = []

    def add(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Have *close* called in the event loop; what it returns is awaited."""
        self._closers.append(close)

    def add_blocking(self, close: Callable[..., None], *arguments: object) -> None:
        """Have *close* called in a thread of its own, because it waits."""
        self._closers.append(partial(asyncio.to_thread, close, *arguments))

    async def close(self) -> None:
        """Close everything; what is not closed in time is left to the end of the process."""
        try:
            await asyncio.wait_for(self._close(), _STOP_MAX_S)
        except TimeoutError:
            log.warning("stopped without waiting longer for what was under way")

    async def _close(self) -> None:
        while self._closers:
            closed = self._closers.pop()()
            if closed is not None:
                await closed
        log.info("stopped")
