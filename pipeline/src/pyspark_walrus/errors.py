"""Errors of the source: one class, whose text names the kind, says what to do, and carries the facts.

Spark shows a user only the text of what Python raised, wrapped in a message of its own; so the text
begins with a stable name that can be searched for, and ends with the facts as JSON.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Kind:
    """What a kind of error means to whoever meets it."""

    name: str
    retryable: bool
    remedy: str


class Reason(Enum):
    """The kinds of errors; `retryable` means that the same query may work a moment later."""

    OPTION_INVALID = Kind("OPTION_INVALID", False, "correct the option")
    TOPIC_NOT_FOUND = Kind("TOPIC_NOT_FOUND", False, "check its name with `walrus topics`, or create it first")
    TOPIC_RECREATED = Kind(
        "TOPIC_RECREATED",
        False,
        "the checkpoint belongs to the deleted topic: start with a new checkpoint",
    )
    PARTITION_GONE = Kind("PARTITION_GONE", False, "the checkpoint names it: start with a new checkpoint")
    OFFSET_OUT_OF_RANGE = Kind("OFFSET_OUT_OF_RANGE", False, "choose offsets that the topic holds (`walrus segments`)")
    DATA_LOSS = Kind(
        "DATA_LOSS",
        False,
        "records that this query had not read are gone; failOnDataLoss=false, or --accept-loss of `walrus archive`, "
        "goes on without them",
    )
    SEGMENT_CORRUPT = Kind("SEGMENT_CORRUPT", False, "a stored batch is damaged; look at the broker's log")
    BATCH_UNREADABLE = Kind(
        "BATCH_UNREADABLE", False, "its producer wrote it so; read around it with startingOffsets and endingOffsets"
    )
    SEGMENT_UNAVAILABLE = Kind("SEGMENT_UNAVAILABLE", True, "no node that could serve the segment answered in time")
    BROKER_UNREACHABLE = Kind("BROKER_UNREACHABLE", True, "check bootstrap.servers and that the cluster is up")
    VERSION_UNSUPPORTED = Kind(
        "VERSION_UNSUPPORTED",
        False,
        "another version of pyspark_walrus wrote the checkpoint: use that one, or start with a new checkpoint",
    )


class SourceError(Exception):
    """An error of the source. `reason` says which kind, `facts` the numbers and names involved."""

    def __init__(self, reason: Reason, message: str, **facts: object) -> None:
        self.reason = reason
        self.facts = facts
        kind = reason.value
        details = json.dumps({**facts, "retryable": kind.retryable}, sort_keys=True, default=str)
        super().__init__(f"[WALRUS_{kind.name}] {message}; {kind.remedy}. {details}")


def message_within(text: str) -> str | None:
    """The message of a SourceError within what Spark made of it; None if there is none."""
    found = re.search(r"\[WALRUS_[A-Z_]+\] .*", text)
    return found[0] if found else None
