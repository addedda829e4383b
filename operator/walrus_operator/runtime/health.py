"""Whether the operator lives: not that its web server answers, but that it hears, works and holds what it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from walrus_operator.clock import Monotonic

RESYNC_MAX_S = 180.0
PASS_MAX_S = 180.0
_DEAF_LISTS = 2
"""After so many lists that show the same deafness, listening anew has not helped."""


@dataclass
class _Listed:
    """What the last list of one namespace showed, and what the watch had told by then."""

    versions: Mapping[str, str] = field(default_factory=dict)
    heard: Mapping[str, str] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)
    deaf_lists: int = 0


class Health:
    """Marks of life. An operator that waits for the lease is well as long as it tries."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._tried = monotonic()
        self._answered: float | None = None
        self._busy: dict[object, float] = {}
        self._heard: dict[str, str] = {}
        self._listed: dict[str, _Listed] = {}

    def tried_lease(self) -> None:
        """The lease was asked for, or renewed."""
        self._tried = self._monotonic()

    def heard(self, uid: str, version: str | None) -> None:
        """The watch told of an object at this version; None: that it is gone. May be called from any thread."""
        if version is None:
            self._heard.pop(uid, None)
        else:
            self._heard[uid] = version

    def resynced(self, namespace: str, versions: Mapping[str, str]) -> bool:
        """A list told of all objects of a namespace and their versions. Returns whether the watch is deaf there.

        What stood at the same version in the list before must have been told by the watch meanwhile, or something
        newer: otherwise the watch is deaf, however healthy its connection looks.
        """
        listed = self._listed.setdefault(namespace, _Listed())
        listed.unheard = {
            uid
            for uid, version in versions.items()
            if listed.versions.get(uid) == version
            and self._heard.get(uid) != version
            and self._heard.get(uid) == listed.heard.get(uid)
        }
        listed.deaf_lists = listed.deaf_lists + 1 if listed.unheard else 0
        for uid in set(listed.versions) - set(versions):
            self._heard.pop(uid, None)
        listed.versions = versions
        listed.heard = {uid: self._heard[uid] for uid in versions if uid in self._heard}
        self._answered = self._monotonic()
        return bool(listed.unheard)

    def closed(self, namespace: str) -> None:
        """A namespace does not let the operator in: an answer, too, and nobody listens there."""
        self._listed.pop(namespace, None)
        self._answered = self._monotonic()

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
        if now - self._tried > RESYNC_MAX_S:
            found.append(f"the lease was last asked for {now - self._tried:.0f} s ago")
        if self._answered is not None and now - self._answered > RESYNC_MAX_S:
            found.append(f"the last list of clusters is {now - self._answered:.0f} s old")
        telling = {namespace: listed for namespace, listed in sorted(self._listed.items()) if listed.versions}
        # Where some are heard a new process would hear no more: the operator may list the others, but not watch them.
        if all(listed.deaf_lists >= _DEAF_LISTS for listed in telling.values()):
            for namespace, listed in telling.items():
                told = f"it never told of {len(listed.unheard)} objects that a list shows"
                found.append(f"the watch of {namespace} is deaf: {told}")
        stuck = [str(key) for key, began in self._busy.items() if now - began > PASS_MAX_S]
        if stuck:
            found.append(f"a pass does not end: {', '.join(sorted(stuck))}")
        return found
