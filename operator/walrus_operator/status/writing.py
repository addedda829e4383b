"""When a status is worth a write: at once if it says something new, now and then if only figures moved. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FIGURES_S = 60.0
"""How often figures that move by themselves are brought up to date in a status."""
_CONTESTED_MAX_S = 960.0

_FIGURES = frozenset({"leader", "term", "underReplicated"})
_ROW_FIGURES = frozenset({"role", "segmentsLed", "diskPercent", "diskFullAt", "drainPercent", "restarts"})
_COUNT = re.compile(r"(?<![-\w.])\d+(?:\.\d+)?(?![-\w.])")


def without_counts(text: str) -> str:
    """A sentence without its counts and with its names: `3 segments on a-0` says what `2 segments on a-0` says."""
    return _COUNT.sub("#", text)


def lasting(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a status says besides figures that move with traffic, and besides since when it says so."""
    made = {name: value for name, value in status.items() if name not in _FIGURES}
    if "brokers" in made:
        made["brokers"] = [_without(row, _ROW_FIGURES) for row in made["brokers"]]
    if "config" in made:
        made["config"] = _without(made["config"], {"applied"})
    if "replication" in made:
        made["replication"] = _without(made["replication"], {"spareBrokers"})
    if "conditions" in made:
        made["conditions"] = [_without(one, {"lastTransitionTime"}) for one in made["conditions"]]
    return {name: _uncounted(value) for name, value in made.items()}


def differing(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The fields of a status that were stored as other ones, or not at all."""
    return sorted(name for name in {*wanted, *stored} if wanted.get(name) != stored.get(name))


def _without(row: Mapping[str, Any], names: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _uncounted(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _uncounted(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_uncounted(inner, name) for inner in value]
    # Only sentences have counts to lose: a name or a version is what it is.
    return without_counts(value) if isinstance(value, str) and name in ("message", "detail") else value


@dataclass
class _Written:
    status: Mapping[str, Any]
    lasting: Mapping[str, Any]
    """What the status says besides figures."""
    at: float
    pause_s: float
    figures_at: float
    """When it was last written for figures alone, a leader among them."""
    sticks: bool
    """Whether it was stored as it was written."""


class Writing:
    """Remembers what was written of each resource. Without a memory, after a restart, it writes once more, no worse."""

    def __init__(
        self, lasting: Callable[[Mapping[str, Any]], dict[str, Any]] = lasting, figures_s: float = FIGURES_S
    ) -> None:
        """*lasting* takes figures out of a status, which are brought up to date every *figures_s*."""
        self._written: dict[str, _Written] = {}
        self._lasting = lasting
        self._figures_s = figures_s

    def due_s(self, uid: str, stored: Mapping[str, Any], wanted: Mapping[str, Any], now: float) -> float | None:
        """In how many seconds to write the status of the resource; None: not at all, it stands there."""
        if stored == wanted:
            return None
        written = self._written.get(uid)
        if written is None or self._lasting(wanted) != written.lasting:
            return 0.0
        if wanted.get("leader") != written.status.get("leader") and now >= written.figures_at + self._figures_s:
            return 0.0
        return max(written.at + written.pause_s - now, 0.0)

    def wrote(self, uid: str, wanted: Mapping[str, Any], stored: Mapping[str, Any], now: float) -> None:
        """Kubernetes stored this. What an older definition or a webhook changes again is tried ever more rarely."""
        before = self._written.get(uid)
        pause = self._figures_s
        if stored != wanted and before is not None:
            pause = min(2 * before.pause_s, _CONTESTED_MAX_S)
        figures_at = float("-inf") if before is None else before.figures_at
        lasting = self._lasting(wanted)
        if before is not None and before.lasting == lasting:
            figures_at = now
        self._written[uid] = _Written(wanted, lasting, now, pause, figures_at, stored == wanted)

    def is_contested(self, uid: str) -> bool:
        """Whether the status that was written last was stored as another one."""
        written = self._written.get(uid)
        return written is not None and not written.sticks

    def forget(self, uid: str) -> None:
        """The resource is gone."""
        self._written.pop(uid, None)
