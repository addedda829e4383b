"""A queue of keys: a key is in it once, is worked on by one worker at a time, and comes back later after a failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from walrus_operator.objects import Key

_FIRST_S = 0.2
_LAST_S = 60.0


class WorkQueue:
    """Keys to look at. Belongs to one event loop."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._asked: set[Key] = set()
        self._answered: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._jitter = jitter

    def __len__(self) -> int:
        return len(self._waiting) + len(self._again)

    def add(self, key: Key) -> None:
        """Look at it as soon as a worker is free; once more, if one is at it."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._asked.add(key)
        self._come(key)

    def _come(self, key: Key) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at it then, unless it is looked at before."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._come, key)

    async def take(self) -> Key:
        """The next key; the worker tells `finish` when it is through."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._working.add(key)
        if key in self._asked:
            self._asked.discard(key)
            self._answered.add(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        return key

    def is_asked(self, key: Key) -> bool:
        """Whether someone asked for the look at the key that is under way; otherwise its time has come."""
        return key in self._answered

    def finish(self, key: Key, again_s: float | None) -> None:
        """It went well; look again then, or never."""
        self._failures.pop(key, None)
        self._release(key, again_s)

    def fail(self, key: Key) -> float:
        """It went wrong; look again later, each time later. Returns in how many seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = min(_LAST_S, _FIRST_S * 2.0 ** min(failures, 16)) * (0.75 + self._jitter() / 2)
        self._release(key, seconds)
        return seconds

    def _release(self, key: Key, again_s: float | None) -> None:
        self._working.discard(key)
        self._answered.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._come(key)
        elif again_s is not None:
            self.add_after(key, again_s)

    def close(self) -> None:
        """Forget the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
