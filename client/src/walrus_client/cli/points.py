"""Where a consumer begins, as a person writes it: `earliest`, `latest`, an offset, a time, or how long ago."""

import re
from dataclasses import dataclass
from datetime import datetime

from walrus_client.model import OffsetPlace

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_OFFSET = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset of each partition; a negative one counts back from its end."""

    offset: int


@dataclass(frozen=True, slots=True)
class Since:
    """A time, milliseconds since the epoch."""

    timestamp_ms: int


Point = OffsetPlace | AtOffset | Since


def parse_point(text: str, now: datetime) -> Point:
    """Return the point that *text* names; *now* is where durations count back from, and whose time zone is meant where
    a time names none. Raises ValueError with what may be written.
    """
    if text in (OffsetPlace.EARLIEST, OffsetPlace.LATEST):
        return OffsetPlace(text)
    if _OFFSET.fullmatch(text):
        return AtOffset(int(text))
    if _AGO.fullmatch(text):
        ago_ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))
        return Since(_milliseconds(now) - ago_ms)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither earliest, latest, an offset such as 1500 or -10, a time such as"
            " 2026-11-27T09:30 or 2026-11-27T09:30:00Z, nor a duration back such as 90s, 2h or 1d12h"
        ) from None
    return Since(_milliseconds(time if time.tzinfo else time.replace(tzinfo=now.tzinfo)))


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
