"""The Rust decoder, as the source uses it, against a slow one written apart."""

import resource
import threading
import zlib
from pathlib import Path

import pytest
import record_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_walrus.cluster import Chunk
from pyspark_walrus.decode import GATHERED_BYTES_MIN, arrow_schema, record_batches
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.plan import Piece, Split
from record_batch import PlainRecord

contents = st.none() | st.binary(max_size=40)
stored_records = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=5), contents), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


def numbered(drawn, base):
    return [
        PlainRecord(base + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(drawn)
    ]


def in_batches(records, size, codec="none"):
    return b"".join(record_batch.encode(records[i : i + size], codec) for i in range(0, len(records), size))


def at(base, batch):
    """The batch with another base offset, which its checksum does not cover."""
    return base.to_bytes(8, "big") + batch[8:]


def decoded(chunks, start, end, *, headers=True):
    split = Split((Piece("orders", "u-1", 3, "segment", start, end, (), 0),))
    return list(record_batches(iter(chunks), split, headers=headers))


@settings(max_examples=200)
@given(stored_records, st.integers(0, 2**50), st.integers(1, 10), st.sampled_from(list(record_batch.CODECS)), st.data())
def test_it_finds_what_the_slow_decoder_finds(drawn, base, size, codec, data):
    records = numbered(drawn, base)
    start = data.draw(st.integers(base, base + len(records) - 1))
    end = data.draw(st.integers(start + 1, base + len(records)))
    stored = in_batches(records, size, codec)
    (batch,) = decoded([Chunk(start, end, stored)], start, end)
    assert batch.schema == arrow_schema(headers=True)
    expected = list(record_batch.decode(in_batches(records, size), start, end))
    assert expected == records[start - base : end - base]
    columns = batch.drop_columns(["timestamp"]).to_pydict()
    assert columns == {
        "key": [record.key for record in expected],
        "value": [record.value for record in expected],
        "topic": ["orders"] * len(expected),
        "partition": [3] * len(expected),
        "offset": [record.offset for record in expected],
        "timestampType": [0] * len(expected),
        "headers": [[{"key": name, "value": value} for name, value in record.headers] for record in expected],
    }
    assert batch.column("timestamp").cast("int64").to_pylist() == [record.timestamp_ms * 1000 for record in expected]


def test_small_answers_are_gathered_to_batches_that_suit_spark():
    page = record_batch.encode([PlainRecord(offset, 0, None, b"x" * 2000) for offset in range(100)])
    chunks = [Chunk(base, base + 100, at(base, page)) for base in range(0, 6000, 100)]
    batches = decoded(chunks, 0, 6000, headers=False)
    assert [batch.num_rows for batch in batches] == [2100, 2100, 1800]  # pages are 100 records
    assert all(batch.nbytes > GATHERED_BYTES_MIN for batch in batches[:-1])
    assert [offset for b in batches for offset in b.column("offset").to_pylist()] == list(range(6000))


def test_every_flipped_byte_under_the_checksum_is_noticed():
    records = [PlainRecord(offset, offset, b"key", b"value", (("h", b"x"),)) for offset in range(3)]
    stored = record_batch.encode(records)
    for at in range(8, len(stored)):
        if 12 <= at < 16:
            continue  # the leader's epoch is outside of the checksum, and nothing to the source
        damaged = bytearray(stored)
        damaged[at] ^= 0x40
        with pytest.raises(SourceError) as caught:
            decoded([Chunk(0, 3, bytes(damaged))], 0, 3)
        assert caught.value.reason is Reason.SEGMENT_CORRUPT, f"a flip at byte {at}"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "java snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_opened_once_however_many_arrow_batches_it_fills(codec):
    # All compressed batches were called damaged.
    records = [PlainRecord(offset, 0, b"k", bytes(10_000)) for offset in range(3_000)]
    stored = record_batch.encode(records, codec)
    assert len(stored) < 2 << 20
    batches = decoded([Chunk(0, 3_000, stored)], 10, 2_990, headers=False)
    assert len(batches) == 4
    assert [offset for b in batches for offset in b.column("offset").to_pylist()] == list(range(10, 2_990))
    assert {value for b in batches for value in b.column("value").to_pylist()} == {bytes(10_000)}


@pytest.mark.parametrize(
    ("number", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd"), (5, "codec 5"), (7, "codec 7")]
)
def test_records_that_cannot_be_opened_are_not_called_damaged_and_name_the_codec(number, name):
    stored = record_batch.of_codec(record_batch.encode([PlainRecord(0, 0, None, b"x")]), number, b"no such stream")
    with pytest.raises(SourceError, match=name) as caught:
        decoded([Chunk(0, 1, stored)], 0, 1)
    assert caught.value.reason is Reason.BATCH_UNREADABLE


def test_a_compressed_batch_without_records_in_it_is_its_producers_fault():
    # It was called damaged, with the advice to look at the broker's log.
    broken = zlib.compress(b"\x01 no record", wbits=31)
    stored = record_batch.of_codec(record_batch.encode([PlainRecord(0, 0, None, b"x")]), 1, broken)
    with pytest.raises(SourceError) as caught:
        decoded([Chunk(0, 1, stored)], 0, 1)
    assert caught.value.reason is Reason.BATCH_UNREADABLE


def test_pages_are_asked_for_while_one_is_decoded():
    asked = threading.Semaphore(0)
    page = record_batch.encode([PlainRecord(offset, 0, None, bytes(500_000)) for offset in range(10)])

    def pages():
        for base in range(0, 50, 10):
            asked.release()
            yield Chunk(base, base + 10, at(base, page))

    split = Split((Piece("orders", "u-1", 3, "segment", 0, 50, (), 0),))
    batches = record_batches(pages(), split, headers=False)
    assert next(batches).num_rows == 10
    assert all(asked.acquire(timeout=60) for _ in range(3))  # the first and two more
    assert [batch.num_rows for batch in batches] == [10] * 4


def test_what_goes_wrong_ahead_is_raised_behind_what_came_before():
    def pages():
        yield Chunk(0, 1, record_batch.encode([PlainRecord(0, 0, None, bytes(5 << 20))]))
        raise SourceError(Reason.SEGMENT_UNAVAILABLE, "on purpose")

    split = Split((Piece("orders", "u-1", 3, "segment", 0, 2, (), 0),))
    batches = record_batches(pages(), split, headers=False)
    assert next(batches).num_rows == 1
    with pytest.raises(SourceError, match="on purpose"):
        next(batches)


def test_ten_million_rows_take_no_more_memory_than_one():
    rows_per_batch, batches_per_page = 2_000, 50
    template = record_batch.encode([PlainRecord(n, 0, b"key", b"0123456789", (("h", b"1"),)) for n in range(2_000)])

    def pages(start, end):
        for base in range(start, end, rows_per_batch * batches_per_page):
            bases = range(base, base + rows_per_batch * batches_per_page, rows_per_batch)
            yield Chunk(base, bases.stop, b"".join(at(first, template) for first in bases))

    def read(start, end):
        split = Split((Piece("orders", "u-1", 3, "segment", start, end, (), 0),))
        return sum(batch.num_rows for batch in record_batches(pages(start, end), split, headers=True))

    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    assert read(0, 1_000_000) == 1_000_000
    before = resident_bytes()
    assert read(1_000_000, 11_000_000) == 10_000_000
    assert resident_bytes() - before < 64 << 20
