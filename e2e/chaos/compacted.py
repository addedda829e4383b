"""What a compacted topic may hold and must hold, whoever reads it and when. Pure.

One producer writes to it, so the offset of a record is its number, and what was appended at each offset is known. A
record may be gone once a later one of its key was appended, and a record without a value once it is old enough. In the
end nothing else may be gone, and nothing is left but the last value of each key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.records import identity_of, value_of
from walrus_client import Header, Record

from chaos.ages import Clocks

PRODUCER = 3_000_000
TOMBSTONE_KEPT_S = 1.0
NUMBER = "number"  # the header that says which record one is, also where there is no value
SHOWN = 5


class Sent(NamedTuple):
    """A record as it was sent, and when."""

    key: bytes
    is_tombstone: bool
    at_s: float


@dataclass
class Compacted:
    """What was sent and what was read. `sent[n]` is record *n*, `newest[key]` the last record of a key."""

    clocks: Clocks
    sent: list[Sent] = field(default_factory=list)
    newest: dict[bytes, int] = field(default_factory=dict)
    acked: int = 0
    read: int = 0
    sweeps: int = 0  # times that the topic was read from its beginning to its end
    gone: int = 0  # most records that such a reader did not find any more, while faults were done
    is_rest_judged: bool = False
    left: int = 0  # records that were there in the end, when nothing more went
    is_at_rest: bool = False
    false: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether every promise held, and there was something to see."""
        return not self.false and self.sweeps > 0 and (self.is_at_rest or not self.is_rest_judged)

    def __str__(self) -> str:
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else "; nothing wrong"
        rest = "at rest in the end" if self.is_at_rest else f"{self.left} left in the end, {len(self.rest())} at rest"
        seen = f"{self.sweeps} times from the beginning, {self.gone} records gone meanwhile"
        return f"{self.acked} records of {len(self.newest)} keys, {self.read} read, {seen}; {rest}{wrong}"

    def send(self, key: bytes, *, is_tombstone: bool, now_s: float) -> int:
        """One more record is sent; gives its number."""
        number = len(self.sent)
        self.sent.append(Sent(key, is_tombstone, now_s))
        self.newest[key] = number
        return number

    def content(self, number: int) -> tuple[bytes, bytes | None, tuple[Header, ...]]:
        """Key, value and headers of a record that was sent."""
        sent = self.sent[number]
        return sent.key, None if sent.is_tombstone else value_of(PRODUCER, number), (Header(NUMBER, b"%d" % number),)

    def check_record(self, where: str, last: int, record: Record) -> None:
        """A reader that had read the record *last* (-1: none) was given this as the next one."""
        self.read += 1
        offset = record.offset
        if offset <= last:
            self.false.append(f"{where}: offset {offset} came after {last}")
        if offset >= len(self.sent):
            self.false.append(f"{where}: offset {offset} is there, and {len(self.sent)} records were sent")
        elif (record.key, record.value, record.headers) != self.content(offset):
            found = f"{record.key!r} {identity_of(record.value)} {record.headers}"
            self.false.append(f"{where}: at offset {offset} is {found}, appended was {self.sent[offset]}")

    def check_passed_over(self, where: str, first: int, end: int, now_s: float) -> None:
        """A reader was given no record from *first* on up to *end*, which was there before *now_s*."""
        for number in range(first, min(end, len(self.sent))):
            if self.newest[self.sent[number].key] == number and not self._may_be_forgotten(number, now_s):
                self.false.append(f"{where}: record {number} is gone, the last of {self.sent[number]}")

    def check_sweep(self, where: str, known: int, offsets: Sequence[int], now_s: float) -> None:
        """A reader found these offsets from the beginning to the end; *known* were acknowledged before it began.

        Each record that is missing must be stood for by a later one that was there.
        """
        self.sweeps += 1
        self.left = len(offsets)
        found = set(offsets)
        end = max(known, max(found, default=-1) + 1)
        behind = range(end, len(self.sent))  # one of those may be gone that the reader would have found there
        stood_for = {self.sent[number].key for number in behind if self._may_be_forgotten(number, now_s)}
        for number in reversed(range(min(end, len(self.sent)))):
            key = self.sent[number].key
            if number not in found and key not in stood_for and not self._may_be_forgotten(number, now_s):
                self.false.append(
                    f"{where}: of {known} records number {number} is missing, the last of {self.sent[number]}"
                )
            stood_for.add(key)

    def note_gone(self, known: int, offsets: Sequence[int]) -> None:
        """A reader that began when *known* were acknowledged found these, while faults were done."""
        self.gone = max(self.gone, known - sum(offset < known for offset in offsets))

    def check_last(self, where: str, records: Iterable[Record]) -> None:
        """What there is in the end, when all that was sent is acknowledged: each key's last value, and nothing else
        that a reader could take for it.
        """
        last: dict[bytes | None, Record] = {record.key: record for record in records}
        for key, number in self.newest.items():
            found = last.pop(key, None)
            if found is None:
                if not self.sent[number].is_tombstone:
                    self.false.append(f"{where}: {key!r} has no value, its last record is {number}")
            elif found.offset != number or (found.key, found.value, found.headers) != self.content(number):
                self.false.append(f"{where}: the last of {key!r} is at {found.offset}, it should be {number}")
        if last:
            self.false.append(f"{where}: nobody wrote {sorted(map(str, last))[:SHOWN]}")

    def rest(self) -> list[int]:
        """The offsets that are left once a compaction has looked at everything, and tombstones are old."""
        return sorted(number for number in self.newest.values() if not self.sent[number].is_tombstone)

    def hashes(self) -> list[int]:
        """The hash of each value that was sent, by offset."""
        return [hash(self.content(number)[1]) for number in range(len(self.sent))]

    def _may_be_forgotten(self, number: int, now_s: float) -> bool:
        sent = self.sent[number]
        return sent.is_tombstone and self.clocks.may_have_passed(TOMBSTONE_KEPT_S, sent.at_s, now_s)
