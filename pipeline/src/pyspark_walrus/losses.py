"""Records that a query wanted and that are gone: which, why, and that each is told once.

Whether a loss ends the query is the option `failOnDataLoss`; what is lost is decided in `plan`.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from pyspark_walrus.errors import Reason, SourceError

log = logging.getLogger("pyspark_walrus")


class Cause(StrEnum):
    """Why records are gone."""

    TRIMMED = "the partition begins behind them now: retention or a trim took them"
    CUT_OFF = "the partition ends before them now: its newest records were lost"
    DELETED = "the topic was deleted"


@dataclass(frozen=True, order=True)
class Loss:
    """The offsets `[start, end)` of a partition that cannot be read any more."""

    topic: str
    partition: int
    start: int
    end: int
    cause: Cause

    @property
    def key(self) -> tuple[str, int]:
        """The partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        return (
            f"offsets {self.start} to {self.end - 1} of partition {self.partition} of topic {self.topic}: {self.cause}"
        )

    def to_json(self) -> dict[str, object]:
        """For Spark's progress reports."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start": self.start,
            "end": self.end,
            "cause": self.cause.value,
        }


class Losses:
    """What becomes of the losses of one query: an error, or a warning that tells each offset once."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._trimmed_to: dict[tuple[str, int], int] = {}
        self._told: set[Loss] = set()
        self._unreported: list[Loss] = []
        self._in_report = 0  # how many of them the newest report has

    def face(self, losses: Iterable[Loss]) -> None:
        """Raises DATA_LOSS for the first, if the query does not accept losses; else logs those that are new."""
        for loss in losses:
            if self._fail:
                raise SourceError(Reason.DATA_LOSS, str(loss), **loss.to_json())
            new = self._new_part(loss)
            if new is not None:
                log.warning("[WALRUS_DATA_LOSS] skips %s", new)
                self._unreported.append(new)

    def to_report(self) -> list[Loss]:
        """What no report of a micro-batch has told yet. Spark shows a report only if a micro-batch follows it."""
        self._in_report = len(self._unreported)
        return list(self._unreported)

    def batch_follows(self) -> None:
        """What the newest report has is told."""
        del self._unreported[: self._in_report]
        self._in_report = 0

    def _new_part(self, loss: Loss) -> Loss | None:
        key = loss.key
        if loss.cause is Cause.TRIMMED:  # the beginning of a partition only rises
            known = self._trimmed_to.get(key, 0)
            self._trimmed_to[key] = max(known, loss.end)
            return replace(loss, start=max(loss.start, known)) if loss.end > known else None
        if loss in self._told:
            return None
        self._told.add(loss)
        return loss
