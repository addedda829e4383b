"""Linearizability of an append-only ledger, from what its users saw. Exact and fast, for a write tells its place.

A history is linearizable if there is one order of all writes and reads that agrees with real time and in which each
read sees the writes before it. The places of the writes are that order; what is left to check are the times.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Write:
    """`place` counts from 1; `None` and an `end` of infinity: nobody knows whether it was done."""

    name: str
    start: float
    end: float
    place: int | None


@dataclass(frozen=True)
class Read:
    """What a linearizable read saw: the first `seen` writes."""

    start: float
    end: float
    seen: tuple[str, ...]


def check(history: list[Write | Read]) -> str | None:
    """Why no order explains the history; `None` if one does."""
    writes = {operation.name: operation for operation in history if isinstance(operation, Write)}
    reads = [operation for operation in history if isinstance(operation, Read)]
    longest = max((read.seen for read in reads), key=len, default=())
    places = {name: place for place, name in enumerate(longest, 1)}
    if len(places) != len(longest):
        return "a write was done twice"
    for read in reads:
        if read.seen != longest[: len(read.seen)]:
            return "two reads saw different orders"
        unknown = [name for name in read.seen if name not in writes]
        if unknown:
            return f"{unknown[0]} was read and never written"
    for write in writes.values():
        if write.place is not None and places.setdefault(write.name, write.place) != write.place:
            return f"{write.name} was told place {write.place} and is at {places[write.name]}"
    if len(set(places.values())) != len(places):
        return "two writes were told one place"
    # An operation's number in the order: a write's place; a read comes behind the last write that it saw.
    numbered = [(places[write.name], write) for write in writes.values() if write.name in places]
    numbered += [(len(read.seen), read) for read in reads]
    return _contradiction(numbered)


def _contradiction(numbered: list[tuple[int, Write | Read]]) -> str | None:
    """Two operations of which one had ended before the other began, in the other order."""
    ended = sorted((operation.end, number, isinstance(operation, Read)) for number, operation in numbered)
    begun = sorted(((operation.start, number, operation) for number, operation in numbered), key=lambda item: item[0])
    highest, position = 0, 0
    for start, number, operation in begun:
        while position < len(ended) and ended[position][0] < start:
            highest = max(highest, ended[position][1])
            position += 1
        # A write must come behind all that had ended; a read may come behind the same write as another read.
        if number < highest or (isinstance(operation, Write) and number == highest > 0):
            return f"{operation} began after something at {highest} had ended, and comes at {number}"
    return None
