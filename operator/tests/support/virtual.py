"""An event loop whose time is counted, not waited for: ten minutes pass as soon as nobody has anything to do."""

from __future__ import annotations

import asyncio
import selectors


class _Selector(selectors.DefaultSelector):
    loop = None

    def select(self, timeout=None):
        if timeout is None:
            raise AssertionError("everybody waits for ever")
        ready = super().select(0)
        if not ready and timeout > 0:
            self.loop.seconds += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer where a loop would sleep."""

    def __init__(self):
        self.seconds = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self):
        return self.seconds

    def run_in_executor(self, _, call, *arguments):
        """At once and here: time would jump ahead of another thread."""
        done = self.create_future()
        done.set_result(call(*arguments))
        return done


def run(story):
    """Run a coroutine in a time of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)


async def until(condition, seconds, what=""):
    """Wait until it holds, at most so many seconds of the loop's time. Returns how many it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() < began + seconds, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(0.5)
    return loop.time() - began
