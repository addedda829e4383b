"""From stored batches to Arrow: hands pages to Rust as they came, and takes columns of a size that suits Spark.

Rust hands over the buffers of the columns; wrapping them in Arrow copies nothing.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
import walrus_core

from pyspark_walrus.ahead import ahead
from pyspark_walrus.cluster import Chunk
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.plan import Split

# Smaller Arrow batches cost Spark a fixed price each, larger ones only memory.
GATHERED_BYTES_MIN: Final = 4 << 20
ARROW_BYTES_MAX: Final = 8 << 20
# Pages that are on their way or here while one is decoded.
PAGES_AHEAD: Final = 2
# The checksum is right, so the bytes are those of the producer: they cannot be opened, or hold no records.
_PRODUCERS_PROBLEMS: Final = ("UnknownCodec", "Unopened", "OpenedTooLarge", "InvalidRecord")


def record_batches(chunks: Iterator[Chunk], split: Split, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of a split in offset order; Arrow batches of 4 to 8 MiB, but for the last and those at a loss."""
    position, end = split.pieces[0].start, split.pieces[-1].end
    place = _Place(split)
    decoder = _decoder(position, end, headers=headers)
    for chunk in ahead(chunks, count=PAGES_AHEAD):
        if chunk.start > position:
            # What lies between is lost. Its last records may stand in the batch in which the next ones begin.
            yield from _rest(decoder, split, place, headers=headers)
            decoder = _decoder(chunk.start, end, headers=headers)
        decoder.add(chunk.batches)
        position = chunk.end
        while decoder.waiting >= GATHERED_BYTES_MIN:
            columns = _take(decoder, split)
            if not columns.rows:
                break
            yield _record_batch(columns, place, headers=headers)
    yield from _rest(decoder, split, place, headers=headers)


def _decoder(start: int, end: int, *, headers: bool) -> walrus_core.BatchDecoder:
    return walrus_core.BatchDecoder(start=start, end=end, bytes_max=ARROW_BYTES_MAX, headers=headers)


def _rest(
    decoder: walrus_core.BatchDecoder, split: Split, place: "_Place", *, headers: bool
) -> Iterator[pa.RecordBatch]:
    while (columns := _take(decoder, split)).rows:
        yield _record_batch(columns, place, headers=headers)


class _Place:
    """The columns that say where the records of a split are: the same in every row, so made once for many batches."""

    def __init__(self, split: Split) -> None:
        self._topic, self._partition = split.pieces[0].topic, split.pieces[0].partition
        self._rows = 0

    def columns(self, rows: int) -> tuple[pa.Array, pa.Array]:
        """Topic and partition, *rows* times each."""
        if rows > self._rows:
            self._rows = rows
            self._topics = pa.repeat(self._topic, rows)
            self._partitions = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
        return self._topics.slice(0, rows), self._partitions.slice(0, rows)


@cache
def arrow_schema(*, headers: bool) -> pa.Schema:
    """The Arrow twin of `schema.spark_schema`.

    Spark takes batches only if they match to the letter: microseconds in UTC, plain `binary`.
    """
    columns = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*columns, ("headers", pa.list_(_HEADER))] if headers else columns)


_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


def _take(decoder: walrus_core.BatchDecoder, split: Split) -> walrus_core.Columns:
    try:
        return decoder.take()
    except walrus_core.WalrusError as error:
        first = split.pieces[0]
        raise SourceError(
            Reason.BATCH_UNREADABLE if error.reason in _PRODUCERS_PROBLEMS else Reason.SEGMENT_CORRUPT,
            f"a batch of topic {first.topic} could not be decoded: {error}",
            topic=first.topic,
            partition=first.partition,
            segments=[piece.segment for piece in split.pieces],
            start=first.start,
            end=split.pieces[-1].end,
        ) from None


def _record_batch(columns: walrus_core.Columns, place: _Place, *, headers: bool) -> pa.RecordBatch:
    rows, schema = columns.rows, arrow_schema(headers=headers)
    arrays = [
        _variable(columns.key, rows, pa.binary()),
        _variable(columns.value, rows, pa.binary()),
        *place.columns(rows),
        _fixed(columns.offset, rows, pa.int64()),
        _fixed(columns.timestamp_us, rows, schema.field("timestamp").type),
        _fixed(columns.timestamp_type, rows, pa.int32()),
    ]
    if columns.headers is not None:
        count = columns.headers.count
        entries = pa.StructArray.from_arrays(
            [
                _variable(columns.headers.key, count, pa.string()),
                _variable(columns.headers.value, count, pa.binary()),
            ],
            fields=list(_HEADER),
        )
        offsets = [None, pa.py_buffer(columns.headers.offsets)]
        arrays.append(pa.ListArray.from_buffers(pa.list_(_HEADER), rows, offsets, children=[entries]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fixed(buffer: walrus_core.Buffer, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)])


def _variable(column: walrus_core.BinaryColumn, rows: int, kind: pa.DataType) -> pa.Array:
    validity = pa.py_buffer(column.validity) if column.validity is not None else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)
