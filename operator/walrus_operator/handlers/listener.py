"""kopf, listening in a thread of its own: it can be stopped and begun anew without touching what is at work."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import kopf

from walrus_operator.handlers import watch
from walrus_operator.objects import Key

log = logging.getLogger(__name__)

_AGAIN_S = 5.0
_TOGETHER_S = 0.5
"""Namespaces that open at the same time are listened to at once, not each with a start of its own."""


class Listener:
    """Listens to the namespaces that answer. A watch of one that does not would die, and nobody would notice."""

    def __init__(
        self, look: Callable[[Key], None], heard: Callable[[str, str | None], None], *, everywhere: bool
    ) -> None:
        """`look` is called in the event loop that `run` runs in; `heard` in any thread."""
        self._look = look
        self._heard = heard
        self._everywhere = everywhere
        self._open: set[str] = set()
        self._changed = asyncio.Event()

    def listen(self, namespace: str, answers: bool) -> None:
        """Listen to this namespace, anew if it was listened to before; or not any more."""
        if answers:
            self._open.add(namespace)
            self._changed.set()
        else:
            self._open.discard(namespace)

    async def run(self) -> None:
        """Listen until cancelled; begun anew whenever there is something else to listen to, or listening has ended."""
        loop = asyncio.get_running_loop()
        stop: threading.Event | None = None
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(_TOGETHER_S)
                self._changed.clear()
                if stop is not None:
                    stop.set()
                stop = self._begin(loop)
        finally:
            if stop is not None:
                stop.set()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> threading.Event:
        """A thread that listens until the event is set. The one before may still be ending: what is told twice, is."""
        stop = threading.Event()
        namespaces = sorted(self._open)

        def look(key: Key) -> None:
            loop.call_soon_threadsafe(self._look, key)

        def listen() -> None:
            try:
                asyncio.run(
                    kopf.operator(
                        registry=watch.registry(look, self._heard),
                        settings=watch.settings(),
                        standalone=True,
                        clusterwide=self._everywhere,
                        namespaces=() if self._everywhere else namespaces,
                        stop_flag=stop,
                    )
                )
            except Exception:
                log.exception("listening failed")
            if not stop.is_set():
                log.warning("listening ended: begun anew in %.0f s", _AGAIN_S)
                loop.call_soon_threadsafe(loop.call_later, _AGAIN_S, self._changed.set)

        threading.Thread(target=listen, name="kopf", daemon=True).start()
        return stop
