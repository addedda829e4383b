"""The Rust decoder, as the source uses it, against a slow one written apart."""

import pytest
import record_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_walrus.cluster import Chunk
from pyspark_walrus.decode import GATHERED_BYTES_MIN, arrow_schema, record_batches
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.plan import Piece
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


def in_batches(records, size):
    return b"".join(record_batch.encode(records[i : i + size]) for i in range(0, len(records), size))


def piece(start, end):
    return Piece("orders", 3, "segment", start, end, True, (), 0)


def decoded(chunks, start, end, *, headers=True):
    return list(record_batches(iter(chunks), piece(start, end), headers=headers))


@settings(max_examples=200)
@given(stored_records, st.integers(0, 2**50), st.integers(1, 10), st.data())
def test_it_finds_what_the_slow_decoder_finds(drawn, base, size, data):
    records = numbered(drawn, base)
    start = data.draw(st.integers(base, base + len(records) - 1))
    end = data.draw(st.integers(start + 1, base + len(records)))
    stored = in_batches(records, size)
    (batch,) = decoded([Chunk(start, end, stored)], start, end)
    assert batch.schema == arrow_schema(headers=True)
    expected = list(record_batch.decode(stored, start, end))
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
    records = [PlainRecord(offset, 0, None, b"x" * 2000) for offset in range(6000)]
    chunks = [Chunk(base, base + 100, record_batch.encode(records[base : base + 100])) for base in range(0, 6000, 100)]
    batches = decoded(chunks, 0, 6000, headers=False)
    assert [batch.num_rows for batch in batches] == [2100, 2100, 1800]
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
