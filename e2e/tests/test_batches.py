"""Batches come out as they went in, and what is no batch is refused."""

import pytest
from harness.batches import BatchError, encode, split, values


def test_batches_and_values_come_out_as_they_went_in() -> None:
    first, second = encode(5, b"a" * 100, None, b""), encode(8, b"x")
    (one, two) = split(first + second)
    assert [(each.base_offset, each.end_offset) for each in (one, two)] == [(5, 8), (8, 9)]
    assert (one.content, two.content) == (first, second)
    assert list(values(one)) == [(5, b"a" * 100), (6, None), (7, b"")]


@pytest.mark.parametrize("content", [encode(0, b"a")[:-1], encode(0, b"a") + b"\0" * 9, b"\1" * 100])
def test_what_is_no_batch_is_refused(content: bytes) -> None:
    with pytest.raises(BatchError):
        list(split(content))


def test_a_compressed_batch_is_refused() -> None:
    with pytest.raises(BatchError, match="compressed"):
        list(values(next(split(encode(0, b"a", attributes=1)))))


def test_copies_of_a_batch_on_several_disks_are_equal() -> None:
    """Each disk marks a batch with where it lies; every copy looked like another batch."""
    here, there = bytearray(encode(7, b"value")), bytearray(encode(7, b"value"))
    here[12:16], there[12:16] = b"\1\2\3\4", b"\5\6\7\x08"
    assert list(split(bytes(here))) == list(split(bytes(there)))
    assert list(split(bytes(here))) != list(split(encode(7, b"other")))
