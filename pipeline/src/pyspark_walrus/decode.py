"""From stored batches to Arrow: gathers chunks to a size that suits Spark and has Rust decode them.

Rust hands over the buffers of the columns; wrapping them in Arrow copies nothing.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import walrus_core

from pyspark_walrus.cluster import Chunk
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.plan import Piece

# Smaller Arrow batches cost Spark a fixed price each, larger ones only memory.
GATHERED_BYTES_MIN: Final = 4 << 20
ARROW_BYTES_MAX: Final = 8 << 20


def record_batches(chunks: Iterator[Chunk], piece: Piece, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of a piece in offset order; Arrow batches of 4 to 8 MiB, but for the last."""
    gathered: list[Chunk] = []
    for chunk in chunks:
        gathered.append(chunk)
        if sum(len(part.batches) for part in gathered) >= GATHERED_BYTES_MIN:
            yield from _decoded(gathered, piece, headers=headers)
            gathered = []
    if gathered:
        yield from _decoded(gathered, piece, headers=headers)


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


def _decoded(gathered: list[Chunk], piece: Piece, *, headers: bool) -> Iterator[pa.RecordBatch]:
    batches = b"".join(chunk.batches for chunk in gathered)
    start, end, position = gathered[0].start, gathered[-1].end, 0
    while start < end and position < len(batches):
        try:
            columns = walrus_core.decode_batches(
                batches, position=position, start=start, end=end, bytes_max=ARROW_BYTES_MAX, headers=headers
            )
        except walrus_core.WalrusError as error:
            raise SourceError(
                Reason.SEGMENT_CORRUPT,
                f"a batch of topic {piece.topic} could not be decoded: {error}",
                topic=piece.topic,
                partition=piece.partition,
                segment=piece.segment,
                start=start,
                end=end,
            ) from None
        if not columns.rows:
            return
        yield _record_batch(columns, piece, headers=headers)
        start, position = columns.next_offset, columns.position


def _record_batch(columns: walrus_core.Columns, piece: Piece, *, headers: bool) -> pa.RecordBatch:
    rows, schema = columns.rows, arrow_schema(headers=headers)
    arrays = [
        _variable(columns.key, rows, pa.binary()),
        _variable(columns.value, rows, pa.binary()),
        pa.repeat(piece.topic, rows),
        pa.repeat(pa.scalar(piece.partition, pa.int32()), rows),
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
