"""Batches to columns and back, against a decoder that is written from Kafka's page and shares no code with ours."""

import gzip
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
import walrus_core
from hypothesis import given
from hypothesis import strategies as st

HEADER = struct.Struct(">qiibIhiqqqhii")
CASTAGNOLI = 0x82F63B78


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def crc_table() -> list[int]:
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Reader:
    """Takes the fields of a record off the front of its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)

    def take(self) -> bytes | None:
        size = self.varint()
        if size == -1:
            return None
        self.position += size
        return self.data[self.position - size : self.position]


def decode(batch: bytes) -> tuple[int, list[Record]]:
    """Base offset and records of one uncompressed batch."""
    base_offset, length, _, magic, crc, _, last_delta, base_timestamp, maximum, *_, count = HEADER.unpack_from(batch)
    assert (magic, length, last_delta) == (2, len(batch) - 12, count - 1)
    assert crc == crc32c(batch[21:])
    reader, records = Reader(batch[HEADER.size :]), []
    for index in range(count):
        end = reader.varint() + reader.position
        reader.position += 1
        timestamp_ms = base_timestamp + reader.varint()
        assert reader.varint() == index
        key, value = reader.take(), reader.take()
        headers = tuple(((reader.take() or b"").decode(), reader.take()) for _ in range(reader.varint()))
        assert reader.position == end
        records.append(Record(key, value, timestamp_ms, headers))
    assert reader.position == len(reader.data)
    assert maximum == max(record.timestamp_ms for record in records)
    return base_offset, records


def encode(records: list[Record], base_offset: int = 0) -> bytes:
    batch = walrus_core.encode_batch(
        [record.value for record in records],
        timestamps_ms=[record.timestamp_ms for record in records],
        keys=[record.key for record in records],
        headers=[record.headers for record in records],
    )
    return base_offset.to_bytes(8, "big") + batch[8:]


def column(found: walrus_core.BinaryColumn, rows: int) -> list[bytes | None]:
    offsets, data = memoryview(found.offsets).cast("i"), memoryview(found.data)
    assert len(offsets) == rows + 1
    assert offsets[0] == 0
    values = [bytes(data[offsets[row] : offsets[row + 1]]) for row in range(rows)]
    if found.validity is None:
        assert found.null_count == 0
        return list(values)
    bits = bytes(found.validity)
    present = [bool(bits[row // 8] >> row % 8 & 1) for row in range(rows)]
    assert present.count(False) == found.null_count
    return [value if there else None for value, there in zip(values, present, strict=True)]


def rows_of(columns: walrus_core.Columns) -> list[tuple[int, Record]]:
    rows = columns.rows
    offsets = memoryview(columns.offset).cast("q").tolist()
    times = [time // 1000 for time in memoryview(columns.timestamp_us).cast("q").tolist()]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * rows
    if columns.headers is not None:
        lists = memoryview(columns.headers.offsets).cast("i").tolist()
        keys = [(key or b"").decode() for key in column(columns.headers.key, columns.headers.count)]
        pairs = list(zip(keys, column(columns.headers.value, columns.headers.count), strict=True))
        headers = [tuple(pairs[lists[row] : lists[row + 1]]) for row in range(rows)]
    records = map(Record, column(columns.key, rows), column(columns.value, rows), times, headers)
    return list(zip(offsets, records, strict=True))


def read_all(data: bytes, **options: int) -> list[tuple[int, Record]]:
    """Goes on until nothing is left, as Spark does."""
    start = options.pop("start", 0)
    position, found = 0, []
    while True:
        columns = walrus_core.decode_batches(data, position=position, start=start, headers=True, **options)
        if not columns.rows:
            return found
        found += rows_of(columns)
        position, start = columns.position, columns.next_offset


MAYBE_BYTES = st.none() | st.binary(max_size=60)
HEADERS = st.lists(st.tuples(st.text(max_size=5), MAYBE_BYTES), max_size=3).map(tuple)
TIMES = st.integers(-(2**50), 2**50)
RECORDS = st.lists(st.builds(Record, MAYBE_BYTES, MAYBE_BYTES, TIMES, HEADERS), min_size=1, max_size=30)


@given(RECORDS)
def test_what_we_encode_another_decoder_reads(records: list[Record]) -> None:
    assert decode(encode(records)) == (0, records)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_columns_hold_what_another_decoder_reads(batches: list[list[Record]], data: st.DataObject) -> None:
    encoded, expected, end = [], [], data.draw(st.integers(0, 1000))
    for records in batches:
        encoded.append(encode(records, end))
        base_offset, again = decode(encoded[-1])
        expected += enumerate(again, base_offset)
        end += len(records)
    first = data.draw(st.integers(0, end + 2))
    last = data.draw(st.integers(0, end + 2))
    bytes_max = data.draw(st.integers(0, 500))
    wanted = [row for row in expected if first <= row[0] < last]
    assert read_all(b"".join(encoded), start=first, end=last, bytes_max=bytes_max) == wanted


def compressed(batch: bytes) -> bytes:
    """The batch as a producer with gzip would have sent it."""
    inside = (1).to_bytes(2, "big") + batch[23:61] + gzip.compress(batch[61:])
    return batch[:8] + (9 + len(inside)).to_bytes(4, "big") + batch[12:17] + crc32c(inside).to_bytes(4, "big") + inside


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(0, 500))
def test_compressed_batches_hold_what_others_do(batches: list[list[Record]], bytes_max: int) -> None:
    stored, base = [], 0
    for records in batches:
        stored.append(encode(records, base))
        base += len(records)
    expected = read_all(b"".join(stored))
    pages = [compressed(batch) for batch in stored]
    assert read_all(b"".join(pages), bytes_max=bytes_max) == expected
    decoder = walrus_core.BatchDecoder(start=0, end=base, bytes_max=bytes_max, headers=True)
    for page in pages:
        decoder.add(page)
    found: list[tuple[int, Record]] = []
    while (columns := decoder.take()).rows:
        found += rows_of(columns)
    assert found == expected


def test_a_limit_on_bytes_holds_but_for_a_single_record() -> None:
    data = encode([Record(b"k", b"v" * 99, 0)] * 10 + [Record(None, b"v" * 1000, 0)])
    sizes, position, start = [], 0, 0
    while (columns := walrus_core.decode_batches(data, position=position, start=start, bytes_max=350)).rows:
        sizes.append((columns.rows, len(columns.key.data) + len(columns.value.data)))
        position, start = columns.position, columns.next_offset
    assert sizes == [(3, 300), (3, 300), (3, 300), (1, 100), (1, 1000)]


def test_the_answer_says_where_to_go_on_when_no_record_was_wanted() -> None:
    data = encode([Record(None, b"a", 0)] * 3, 10)
    behind = walrus_core.decode_batches(data, start=13)
    assert (behind.rows, behind.position, behind.next_offset) == (0, len(data), 13)
    before = walrus_core.decode_batches(data, start=5, end=10)
    assert (before.rows, before.position, before.next_offset) == (0, 0, 10)
    nothing = walrus_core.decode_batches(b"", start=5)
    assert (nothing.rows, nothing.position, nothing.next_offset) == (0, 0, 5)
    with pytest.raises(ValueError, match="position 1 is behind"):
        walrus_core.decode_batches(b"", position=1)


def test_timestamps_that_arrow_cannot_say_are_the_nearest_that_it_can() -> None:
    data = encode([Record(None, None, 2**63 - 1), Record(None, None, -(2**63)), Record(None, None, -1)])
    times = memoryview(walrus_core.decode_batches(data).timestamp_us).cast("q").tolist()
    assert times == [2**63 - 1, -(2**63), -1000]


def test_log_append_time_is_told_by_its_type() -> None:
    batch = bytearray(encode([Record(None, b"a", 5), Record(None, b"b", 9)]))
    batch[22] = 8
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    columns = walrus_core.decode_batches(bytes(batch))
    assert memoryview(columns.timestamp_type).cast("i").tolist() == [1, 1]
    assert memoryview(columns.timestamp_us).cast("q").tolist() == [9000, 9000]


def test_the_producer_is_in_the_header() -> None:
    batch = walrus_core.encode_batch([b"v"], timestamps_ms=[1], producer_id=7, producer_epoch=2, base_sequence=3)
    assert HEADER.unpack_from(batch)[9:12] == (7, 2, 3)
    assert HEADER.unpack_from(walrus_core.encode_batch([b"v"], timestamps_ms=[1]))[9:12] == (-1, -1, -1)


def test_sequences_of_different_length_are_no_batch() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        walrus_core.encode_batch([b"v"], timestamps_ms=[1, 2])
    with pytest.raises(ValueError, match="differ in length"):
        walrus_core.encode_batch([b"v"], timestamps_ms=[1], keys=[])
    with pytest.raises(TypeError):
        walrus_core.encode_batch(["text"], timestamps_ms=[1])  # type: ignore[list-item]


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_an_error(data: bytes) -> None:
    if data:
        with pytest.raises(walrus_core.CorruptionError):
            walrus_core.decode_batches(data)


@given(RECORDS, st.lists(st.tuples(st.integers(21), st.integers(0, 255)), max_size=5))
def test_forged_records_with_a_right_checksum_are_records_or_an_error(
    records: list[Record], edits: list[tuple[int, int]]
) -> None:
    batch = bytearray(encode(records))
    for position, byte in edits:
        batch[21 + (position - 21) % (len(batch) - 21)] = byte
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    try:
        columns = walrus_core.decode_batches(bytes(batch), headers=True)
    except walrus_core.WalrusError:
        return
    assert columns.rows == HEADER.unpack_from(batch)[-1] or columns.next_offset == 2**63 - 1
    assert len(rows_of(columns)) == columns.rows


def test_a_view_of_a_part_of_bytes_is_decoded_where_it_lies() -> None:
    first, second = encode([Record(b"k", b"first", 1)]), encode([Record(b"k", b"second", 2)])
    answer = b"in front" + first + second + b"behind"
    view = memoryview(answer)[8 : 8 + len(first)]
    assert rows_of(walrus_core.decode_batches(view)) == rows_of(walrus_core.decode_batches(first))
    decoder = walrus_core.BatchDecoder()
    decoder.add(view[:0])
    decoder.add(memoryview(answer)[8:-6][len(first) :])
    del answer, view
    assert rows_of(decoder.take()) == rows_of(walrus_core.decode_batches(second))


def test_views_whose_bytes_may_change_or_lie_apart_are_refused() -> None:
    decoder = walrus_core.BatchDecoder()
    batch = encode([Record(None, b"value", 0)])
    released = memoryview(batch)
    released.release()
    for view, error, why in (
        (memoryview(bytearray(batch)), TypeError, "memoryview of bytes, not of"),
        (memoryview(batch)[::2], ValueError, "leaves none of them out"),
        (memoryview(batch)[::-1], ValueError, "leaves none of them out"),
        (memoryview(batch).cast("b"), BufferError, "u8"),
        (released, ValueError, "released"),
        ("text", TypeError, "bytes"),
    ):
        with pytest.raises(error, match=why):
            decoder.add(view)  # type: ignore[arg-type]
    assert decoder.waiting == 0


def test_buffers_are_read_only_and_outlive_their_columns() -> None:
    buffer = walrus_core.decode_batches(encode([Record(b"key", b"value", 0)])).value.data
    view = memoryview(buffer)
    del buffer
    assert view.readonly
    assert bytes(view) == b"value"
    assert len(walrus_core.decode_batches(b"").offset) == 0


def test_memory_of_columns_is_used_again_only_when_nobody_sees_it() -> None:
    def column(byte: bytes, size: int) -> memoryview:
        return memoryview(walrus_core.decode_batches(encode([Record(None, byte * size, 0)])).value.data)

    sizes = [1 << 20, 3 << 20, 2 << 20, 1 << 20, 5 << 20, 1 << 20]
    seen = [(column(b"%d" % n, size), b"%d" % n * size) for n, size in enumerate(sizes)]
    for n in range(20):
        view, expected = seen.pop(n % len(seen))
        assert view == expected
        del view
        size = sizes[n % len(sizes)]
        seen.append((column(b"%d" % (n % 7), size), b"%d" % (n % 7) * size))
    assert all(view == expected for view, expected in seen)


def test_memory_stays_flat_over_a_million_records() -> None:
    records = [Record(b"k%d" % row, b"v" * 100, row, (("h", b"x"),)) for row in range(1000)]

    def round_trips(count: int) -> None:
        for _ in range(count):
            columns = walrus_core.decode_batches(encode(records), headers=True)
            assert len(memoryview(columns.value.data)) == 100_000

    round_trips(100)
    before = resident_bytes()
    round_trips(1000)
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(1, 200), st.data())
def test_a_decoder_of_pages_gives_what_one_piece_of_memory_gives(
    batches: list[list[Record]], bytes_max: int, data: st.DataObject
) -> None:
    stored, base = [], 0
    for records in batches:
        stored.append(base.to_bytes(8, "big") + encode(records)[8:])
        base += len(records)
    start, end = data.draw(st.integers(0, base)), data.draw(st.integers(0, base))
    decoder = walrus_core.BatchDecoder(start=start, end=end, bytes_max=bytes_max, headers=True)
    found: list[tuple[int, Record]] = []
    pages = list(stored)
    while pages:
        decoder.add(pages.pop(0))
        if data.draw(st.booleans()):  # as pages come, or all at once
            continue
        while (columns := decoder.take()).rows:
            found += rows_of(columns)
    while (columns := decoder.take()).rows:
        found += rows_of(columns)
    assert found == [row for row in read_all(b"".join(stored)) if start <= row[0] < end]
