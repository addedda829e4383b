"""The checker finds what it must find: a check that cannot fail proves nothing."""

import pytest
from harness.records import check_partition, value_of


def log(*sequences: int) -> list[tuple[int, bytes | None]]:
    return [(offset, value_of(1, sequence)) for offset, sequence in enumerate(sequences)]


def test_a_whole_log_has_no_findings() -> None:
    assert not check_partition(log(0, 1, 2, 3), acked={1: 4})


def test_records_that_were_not_acknowledged_may_be_there_or_not() -> None:
    assert not check_partition(log(0, 1, 2), acked={1: 2})
    assert not check_partition(log(0, 1), acked={1: 2})


def test_a_lost_record_is_named() -> None:
    assert check_partition(log(0, 2), acked={1: 3}).lost == [(1, 1)]
    assert check_partition(log(), acked={7: 1}).lost == [(7, 0)]


def test_a_record_stored_twice_is_named() -> None:
    assert check_partition(log(0, 1, 1), acked={1: 2}).duplicated == [(1, 1)]


def test_a_record_behind_a_later_one_is_named() -> None:
    assert check_partition(log(0, 2, 1), acked={1: 3}).reordered == [(1, 1)]


def test_a_gap_in_the_offsets_is_named() -> None:
    assert check_partition([(0, value_of(1, 0)), (2, value_of(1, 1))], acked={1: 2}).gaps == [(1, 2)]


@pytest.mark.parametrize("position", range(64))
def test_any_changed_byte_is_found(position: int) -> None:
    value = bytearray(value_of(1, 0))
    value[position] ^= 1
    assert check_partition([(0, bytes(value))], acked={}).changed == [0]
