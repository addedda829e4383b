"""Records that say who sent them and in which order, and the check of what came out of the log. Pure.

A value is `producer | sequence | random | filler | CRC-32 of all before`, so one pass over a partition finds what was
lost, stored twice, reordered or changed, without remembering the payloads.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_HEAD = struct.Struct("<IQQ")
_CRC = struct.Struct("<I")


def value_of(producer: int, sequence: int, *, size: int = 64, random: int = 0) -> bytes:
    """The value of the *sequence*-th record of *producer*, *size* bytes long (at least 24).

    *random* (64 bits) tells two values apart that were made for the same place.
    """
    body = _HEAD.pack(producer, sequence, random).ljust(size - _CRC.size, b"\xa5")
    return body + _CRC.pack(zlib.crc32(body))


@dataclass
class Findings:
    """What is wrong with a partition; all empty when every promise held."""

    changed: list[int] = field(default_factory=list)  # offsets
    gaps: list[tuple[int, int]] = field(default_factory=list)  # (expected offset, found offset)
    duplicated: list[tuple[int, int]] = field(default_factory=list)  # (producer, sequence)
    reordered: list[tuple[int, int]] = field(default_factory=list)  # (producer, sequence)
    lost: list[tuple[int, int]] = field(default_factory=list)  # (producer, sequence)

    def __bool__(self) -> bool:
        return any((self.changed, self.gaps, self.duplicated, self.reordered, self.lost))


def check_partition(
    records: Iterable[tuple[int, bytes | None]], *, acked: Mapping[int, int], first_offset: int = 0
) -> Findings:
    """Compares the (offset, value) pairs of a partition with what was acknowledged.

    *acked* says for each producer how many records, counted from sequence 0, were acknowledged. Records that were sent
    and not acknowledged may be there once, in order, or not at all.
    """
    findings = Findings()
    seen: dict[int, set[int]] = {}
    highest: dict[int, int] = {}
    expected = first_offset
    for offset, value in records:
        if offset != expected:
            findings.gaps.append((expected, offset))
        expected = offset + 1
        identity = identity_of(value)
        if identity is None:
            findings.changed.append(offset)
            continue
        producer, sequence = identity
        if sequence in seen.setdefault(producer, set()):
            findings.duplicated.append(identity)
        elif sequence < highest.get(producer, 0):
            findings.reordered.append(identity)
        seen[producer].add(sequence)
        highest[producer] = max(sequence, highest.get(producer, 0))
    for producer, count in acked.items():
        missing = set(range(count)) - seen.get(producer, set())
        findings.lost.extend((producer, sequence) for sequence in sorted(missing))
    return findings


def identity_of(value: bytes | None) -> tuple[int, int] | None:
    """Producer and sequence of a value; `None` if it is not one of ours, or was changed."""
    if value is None or len(value) < _HEAD.size + _CRC.size:
        return None
    body, crc = value[: -_CRC.size], _CRC.unpack(value[-_CRC.size :])[0]
    if zlib.crc32(body) != crc:
        return None
    producer, sequence, _random = _HEAD.unpack_from(body)
    return producer, sequence
