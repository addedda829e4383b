"""The disk under brokers: when it is taken to rest."""

from walrus_bench.suites.disk import PATIENCE_S, Disk

GIB = 1 << 30


def disk(*free: int) -> tuple[Disk, list[float]]:
    """A disk on which so much is free at one look after the other, and the pauses that were made."""
    looks, pauses = iter(free), list[float]()
    last = [0]

    def look() -> int:
        last[0] = next(looks, last[0])
        return last[0]

    return Disk(look, pauses.append), pauses


def test_a_disk_rests_when_what_a_sample_wrote_is_free_again() -> None:
    """The space of two samples comes back one behind the other."""
    resting, pauses = disk(20 * GIB, 12 * GIB, 15 * GIB, 20 * GIB)
    resting.rest()
    assert len(pauses) == 3
    assert resting.rested == 20 * GIB


def test_what_a_sample_leaves_for_good_is_waited_for_once() -> None:
    """A million offsets stay, for the next samples."""
    resting, pauses = disk(20 * GIB, 10 * GIB)
    resting.rest()
    assert sum(pauses) >= PATIENCE_S
    pauses.clear()
    resting.rest()
    assert len(pauses) == 1
