"""Whether the operator shall only look: by an annotation without an end, or by one that names it. Pure."""

from __future__ import annotations

import re
from datetime import datetime

from walrus_operator.desired.names import PAUSE, PAUSE_UNTIL
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Wait

_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}([.]\d{1,9})?(Z|[+-]\d{2}:\d{2})")
_EXAMPLE = "2026-12-24T06:00:00Z"


def paused(snapshot: Snapshot) -> Wait | None:
    """What pauses the cluster. A time that nobody can read pauses it too: whoever wrote it wanted a pause."""
    cluster = snapshot.cluster
    if cluster.pause is not None:
        reason = cluster.pause or "no reason given"
        return Wait(Gate.PAUSED, f"{reason}; take the annotation {PAUSE} away to go on")
    if cluster.pause_until is None:
        return None
    until = _parsed(cluster.pause_until)
    if until is None:
        return Wait(
            Gate.PAUSED,
            f"{PAUSE_UNTIL}: {cluster.pause_until[:60]!r} is no time of RFC 3339: nothing is changed until it is one,"
            f" for example {_EXAMPLE}, or is taken away",
        )
    if snapshot.at >= until:
        return None
    return Wait(Gate.PAUSED, f"until {cluster.pause_until}, as {PAUSE_UNTIL} says; take it away to go on before")


def _parsed(text: str) -> datetime | None:
    text = text.strip().upper()
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
