"""Whether the operator lives: not that its web server answers, but that it hears, works and holds what it must hold."""

from __future__ import annotations

from walrus_operator.clock import Monotonic

RESYNC_SECONDS_MAX = 180.0
PASS_SECONDS_MAX = 180.0


class Health:
    """Marks of life. An operator that waits for the lease is well as long as it tries."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._tried = monotonic()
        self._resynced: float | None = None
        self._busy: dict[object, float] = {}
        self._heard: dict[str, str] = {}
        self._heard_then: dict[str, str] = {}
        self._listed: dict[str, str] = {}
        self._unheard: set[str] = set()

    def tried_lease(self) -> None:
        """The lease was asked for, or renewed."""
        self._tried = self._monotonic()

    def heard(self, uid: str, version: str | None) -> None:
        """The watch told of an object at this version; None: that it is gone."""
        if version is None:
            self._heard.pop(uid, None)
        else:
            self._heard[uid] = version

    def resynced(self, versions: dict[str, str]) -> None:
        """A list told of all objects and their versions.

        What stood at the same version in the list before must have been told by the watch meanwhile, or something
        newer: otherwise the watch is deaf, however healthy its connection looks.
        """
        self._unheard = {
            uid
            for uid, version in versions.items()
            if self._listed.get(uid) == version
            and self._heard.get(uid) != version
            and self._heard.get(uid) == self._heard_then.get(uid)
        }
        for uid in set(self._listed) - set(versions):
            self._heard.pop(uid, None)
        self._listed = versions
        self._heard_then = dict(self._heard)
        self._resynced = self._monotonic()

    def began(self, key: object) -> None:
        """A pass began."""
        self._busy[key] = self._monotonic()

    def ended(self, key: object) -> None:
        """A pass ended, well or not."""
        self._busy.pop(key, None)

    def troubles(self) -> list[str]:
        """What is wrong; nothing, if all is well."""
        now = self._monotonic()
        found = []
        if now - self._tried > RESYNC_SECONDS_MAX:
            found.append(f"the lease was last asked for {now - self._tried:.0f} s ago")
        if self._resynced is not None and now - self._resynced > RESYNC_SECONDS_MAX:
            found.append(f"the last list of clusters is {now - self._resynced:.0f} s old")
        if self._unheard:
            found.append(f"the watch is deaf: it never told of {len(self._unheard)} clusters that a list shows")
        stuck = [str(key) for key, began in self._busy.items() if now - began > PASS_SECONDS_MAX]
        if stuck:
            found.append(f"a pass does not end: {', '.join(sorted(stuck))}")
        return found
