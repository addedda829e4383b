"""When brokers may be stopped for what users change, and when an upgrade is final."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from walrus_operator.api.schema import ATOMIC, Model, Spelled

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = f"({'|'.join(_DAYS)})"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"
_WEEK = timedelta(days=7)

WindowText = Annotated[
    str,
    Field(max_length=32),
    Spelled(
        f"^(daily|{_DAY}(-{_DAY})?) {_CLOCK}-{_CLOCK} UTC$",
        "must be days and a time, for example Sun 02:00-05:00 UTC, Mon-Fri 22:00-04:00 UTC or daily 01:00-02:00 UTC",
    ),
]


class Finalize(StrEnum):
    """Who says that a cluster uses what its release brought to the metadata."""

    AUTO = "Auto"
    MANUAL = "Manual"


class UpdatePolicy(Model):
    """When brokers may be stopped for what users change, and when an upgrade is final."""

    finalize: Finalize = Finalize.AUTO
    """When the cluster begins to use what a new release brought to its metadata: once its last broker runs it (`Auto`),
    or once someone says so (`Manual`, by the annotation `walrus.dev/finalize: "<level>"` or by `walrus cluster
    finalize`). Until then `version` can go back."""
    maintenance_windows: list[WindowText] = Field(default_factory=list, max_length=16, json_schema_extra=ATOMIC)
    """Times in which brokers restart for another spec, each `Sun 02:00-05:00 UTC`, `Mon-Fri 22:00-04:00 UTC` or
    `daily 01:00-02:00 UTC`; one that ends before it begins ends on the next day. Without any: at all times. Growth and
    repairs wait for none."""


@dataclass(frozen=True)
class Window:
    """A time that comes again each week."""

    days: frozenset[int]
    """Days on which it begins, Monday being 0."""
    begins: timedelta
    """After midnight."""
    lasts: timedelta

    @classmethod
    def parse(cls, text: str) -> Window:
        """From a text that the model has checked."""
        days, clocks, _ = text.split()
        first, last = (timedelta(hours=int(one[:2]), minutes=int(one[3:])) for one in clocks.split("-"))
        lasts = last - first if last > first else last - first + timedelta(days=1)
        return cls(_days_of(days), first, lasts)

    def is_open(self, at: datetime) -> bool:
        """Whether it is open now; one that began yesterday may last."""
        return any(begin <= at < begin + self.lasts for begin in self._begins_around(at))

    def next_after(self, at: datetime) -> datetime:
        """When it opens next."""
        return min(begin for begin in self._begins_around(at) if begin > at)

    def _begins_around(self, at: datetime) -> list[datetime]:
        midnight = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
        near = (midnight + timedelta(days=day) for day in range(-1, _WEEK.days + 1))
        return [day + self.begins for day in near if day.weekday() in self.days]


def _days_of(text: str) -> frozenset[int]:
    if text == "daily":
        return frozenset(range(len(_DAYS)))
    first, _, last = text.partition("-")
    begin, end = _DAYS.index(first), _DAYS.index(last or first)
    return frozenset(day % len(_DAYS) for day in range(begin, end + 1 if end >= begin else end + 1 + len(_DAYS)))
