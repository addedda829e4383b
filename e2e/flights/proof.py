"""What must hold of the archive, as pure functions from what was produced and what was found to findings.

Nothing here knows Spark, Walrus or the clock. Each check says what did not hold in words for a reader, with examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

EXAMPLES: Final = 5
SEALED_SEGMENTS_MIN: Final = 8
COPIES_CLAIM: Final = "all copies are whole and the same, on the killed broker, too"


@dataclass(frozen=True)
class Finding:
    """One thing that had to hold, and whether it did."""

    claim: str
    held: bool
    detail: str


@dataclass(frozen=True)
class Records:
    """Records as columns of one length. `id` is the event's place in time order, `checksum` the CRC-32 of the value."""

    offset: npt.NDArray[np.int64]
    id: npt.NDArray[np.int64]
    key: npt.NDArray[np.object_]
    timestamp_ms: npt.NDArray[np.int64]
    checksum: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True)
class Delays:
    """Flights of a group, and their mean departure delay in minutes (None: all cancelled)."""

    flights: int
    mean_minutes: float | None


@dataclass(frozen=True)
class Losses:
    """Which events are not in the archive, and which are there more than once."""

    lost: npt.NDArray[np.int64]
    duplicated: npt.NDArray[np.int64]


def losses(produced: Records, archived: Records) -> Losses:
    """Compares by id."""
    found, counts = np.unique(archived.id, return_counts=True)
    return Losses(np.setdiff1d(produced.id, found), found[counts > 1])


def each_record_once(produced: Records, archived: Records) -> Finding:
    """Every event that was produced is in the archive exactly once, and nothing else is."""
    differing = losses(produced, archived)
    strange = np.setdiff1d(archived.id, produced.id)
    return Finding(
        "every record is there exactly once",
        not (len(differing.lost) or len(differing.duplicated) or len(strange)),
        f"{len(archived):,} archived of {len(produced):,} produced"
        + _examples("lost", differing.lost)
        + _examples("duplicated", differing.duplicated)
        + _examples("never produced", strange),
    )


def offsets_dense(archived: Records) -> Finding:
    """The offsets are 0, 1, 2, ... without a gap or a repetition."""
    offsets = np.sort(archived.offset)
    wrong = np.flatnonzero(offsets != np.arange(len(offsets)))
    detail = f"0 to {len(offsets) - 1:,}" if not len(wrong) else f"expected {wrong[0]}, found {offsets[wrong[0]]}"
    return Finding("offsets are dense", not len(wrong), detail)


def in_order_per_key(archived: Records) -> Finding:
    """Within each key, higher offsets hold later events."""
    by_key_then_offset = np.lexsort((archived.offset, archived.key.astype("U")))
    keys, ids = archived.key[by_key_then_offset], archived.id[by_key_then_offset]
    backwards = np.flatnonzero((keys[1:] == keys[:-1]) & (ids[1:] <= ids[:-1]))
    return Finding(
        "records of each key are in order",
        not len(backwards),
        f"{len(set(archived.key.tolist()))} keys" + _examples("out of order", ids[backwards + 1]),
    )


def records_unchanged(produced: Records, archived: Records) -> Finding:
    """Key, timestamp and every byte of the value are as they were produced."""
    known = np.isin(archived.id, produced.id)
    place = np.searchsorted(produced.id, archived.id[known])
    differs = (
        (produced.key[place] != archived.key[known])
        | (produced.timestamp_ms[place] != archived.timestamp_ms[known])
        | (produced.checksum[place] != archived.checksum[known])
    )
    changed = archived.id[known][differs]
    return Finding(
        "keys, values and timestamps are unchanged",
        not len(changed),
        f"{int(known.sum()):,} records compared" + _examples("changed", changed),
    )


def aggregates_equal(group: str, expected: Mapping[str, Delays], found: Mapping[str, Delays]) -> Finding:
    """Spark's aggregates over the archive are those of the table, to the last digit."""
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    detail = f"{len(expected)} groups, flights and mean departure delay"
    if wrong:
        first = wrong[0]
        detail += f"; {group} {first}: expected {expected.get(first)}, found {found.get(first)}"
    return Finding(f"Spark's aggregates by {group} equal the table's", not wrong, detail)


def second_run_continued(archived_by_run: Sequence[int], produced: int) -> Finding:
    """Each run archived a part, and together they archived all."""
    detail = " + ".join(f"{count:,}" for count in archived_by_run)
    held = len(archived_by_run) > 1 and all(archived_by_run) and sum(archived_by_run) == produced
    return Finding("the second archive run picked up where the first stopped", held, detail)


def segments_rotated(sealed: int, led_by_node: Mapping[str, int]) -> Finding:
    """The topic rolled over often enough, and every node had its turn as leader."""
    idle = sorted(node for node, count in led_by_node.items() if not count)
    held = sealed >= SEALED_SEGMENTS_MIN and not idle
    turns = ", ".join(f"{node} led {count}" for node, count in sorted(led_by_node.items()))
    return Finding(
        f"at least {SEALED_SEGMENTS_MIN} segments are sealed, every node led some", held, f"{sealed} sealed; {turns}"
    )


def killed_under_load(undelivered_bytes: int, killed_leader: bool) -> Finding:
    """The leader of the open segment was killed while appends were on their way."""
    return Finding(
        "the leader was killed with appends in flight",
        killed_leader and undelivered_bytes > 0,
        f"{undelivered_bytes:,} bytes on their way",
    )


def copies_whole(
    replicas: Mapping[str, Sequence[str]], copies: Mapping[str, Mapping[str, str]], killed: str
) -> Finding:
    """Every broker that stores a sealed segment has all of it, the same bytes, also the one that was down.

    *replicas* has by sealed segment the brokers that store it, *copies* by broker and segment the digest of its copy.
    """
    digests = {segment: [copies[node].get(segment) for node in nodes] for segment, nodes in replicas.items()}
    wrong = [segment for segment, found in digests.items() if None in found or len(set(found)) != 1]
    of_killed = sum(killed in nodes for nodes in replicas.values())
    detail = f"{sum(map(len, digests.values()))} copies of {len(digests)} sealed segments, {of_killed} on {killed}"
    if wrong:
        lacking = [node for node in replicas[wrong[0]] if wrong[0] not in copies[node]]
        detail += f"; {len(wrong)} differ, as {wrong[0]}" + (f", lacking on {', '.join(lacking)}" if lacking else "")
    held = not wrong and of_killed > 0
    return Finding(COPIES_CLAIM, held, detail)


def copies_unread(reason: str) -> Finding:
    """The copies could not be compared."""
    return Finding(COPIES_CLAIM, False, reason)


def _examples(what: str, ids: npt.NDArray[np.int64]) -> str:
    if not len(ids):
        return ""
    some = ", ".join(map(str, ids[:EXAMPLES].tolist()))
    return f"; {len(ids):,} {what}: {some}{', ...' if len(ids) > EXAMPLES else ''}"
