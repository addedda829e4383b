"""The verdict on disks finds what it must find: a check that cannot fail proves nothing."""

from chaos.disk_verdict import DiskVerdict, Extent, judge_disks
from harness.batches import Batch, encode, split
from harness.records import value_of

VALUES = [value_of(1, sequence) for sequence in range(6)]
HELD = [hash(value) for value in VALUES]
EXTENTS = [Extent("a", 0, 4), Extent("b", 4, 6)]


def batches(*pairs: tuple[int, int], values: list[bytes] = VALUES) -> list[Batch]:
    """Batches of these half-open ranges of offsets."""
    return list(split(b"".join(encode(start, *values[start:end]) for start, end in pairs)))


def whole() -> dict[tuple[str, int], list[Batch]]:
    """Three disks that hold everything."""
    copies: dict[tuple[str, int], list[Batch]] = {}
    for node in (1, 2, 3):
        copies["a", node] = batches((0, 2), (2, 4))
        copies["b", node] = batches((4, 6))
    return copies


def judged(copies: dict[tuple[str, int], list[Batch]], extents: list[Extent] = EXTENTS) -> DiskVerdict:
    return judge_disks(extents, copies, held=HELD, write_quorum=2)


def test_equal_disks_are_right() -> None:
    verdict = judged(whole())
    assert verdict
    assert verdict.copies == 6


def test_a_minority_may_lack_a_tail_or_all() -> None:
    copies = whole()
    copies["a", 3] = batches((0, 2))
    del copies["b", 1]
    assert judged(copies)


def test_what_lies_behind_the_decided_end_does_not_count() -> None:
    copies = whole()
    copies["a", 1] += list(split(encode(4, b"never acknowledged")))
    assert judged(copies)


def test_other_bytes_at_an_offset_are_found() -> None:
    copies = whole()
    copies["a", 2] = batches((0, 2), (2, 4), values=[*VALUES[:3], value_of(1, 3, random=1), *VALUES[4:]])
    verdict = judged(copies)
    assert not verdict
    assert verdict.unequal == [(2, 2, 1)]
    assert "1 unequal: [(2, 2, 1)]" in str(verdict)


def test_too_few_whole_copies_are_found() -> None:
    copies = whole()
    copies["a", 1] = copies["a", 2] = batches((0, 2))
    verdict = judged(copies)
    assert verdict.too_few == [("a", 1)]
    assert not verdict.gone


def test_a_copy_with_a_hole_is_not_whole() -> None:
    copies = whole()
    copies["a", 1] = copies["a", 2] = batches((2, 4))
    assert judged(copies).too_few == [("a", 1)]


def test_records_that_no_disk_has_are_found() -> None:
    copies = {key: value for key, value in whole().items() if key[0] == "a"}
    verdict = judged(copies)
    assert verdict.gone == [4]
    assert verdict.too_few == [("b", 0)]


def test_values_that_readers_saw_otherwise_are_found() -> None:
    verdict = judge_disks(EXTENTS, whole(), held=[0, *HELD[1:]], write_quorum=2)
    assert verdict.unlike == [0]


def test_segments_that_do_not_join_are_found() -> None:
    verdict = judged(whole(), [Extent("a", 0, 3), Extent("b", 4, 6)])
    assert verdict.torn_chain == [(3, 4)]
