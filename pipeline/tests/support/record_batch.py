"""A slow RecordBatch v2 codec, written from Kafka's description of the format and nothing else.

The decoder of the source is Rust; this one checks it, and the encoder makes input for both.
"""

import gzip
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

# base offset, batch length, leader epoch, magic, crc | attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count
_OUTSIDE_CRC = struct.Struct(">qiibI")
_INSIDE_CRC = struct.Struct(">hiqqqhii")
_LENGTH_COUNTS_FROM = 12
_HEADER_BYTES = 61


@dataclass(frozen=True)
class PlainRecord:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _java_snappy(data: bytes) -> bytes:
    """Frames data like snappy-java, which Kafka's clients use: magic, two versions, blocks behind their lengths."""
    blocks = [pa.compress(data[at : at + 32_768], codec="snappy", asbytes=True) for at in range(0, len(data), 32_768)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, lambda data: data),
    "gzip": (1, gzip.compress),
    "snappy": (2, lambda data: pa.compress(data, codec="snappy", asbytes=True)),
    "java snappy": (2, _java_snappy),
    "lz4": (3, lambda data: pa.compress(data, codec="lz4", asbytes=True)),
    "zstd": (4, lambda data: pa.compress(data, codec="zstd", asbytes=True)),
}


def encode(records: Sequence[PlainRecord], codec: str = "none") -> bytes:
    """One batch of records with dense offsets."""
    batch = _without_checksum(records)
    number, compress = CODECS[codec]
    return of_codec(batch, number, compress(batch[_HEADER_BYTES:]))


def of_codec(batch: bytes, codec: int, records: bytes) -> bytes:
    """The batch with these bytes as its records."""
    base_offset, _, epoch, magic, _ = _OUTSIDE_CRC.unpack_from(batch)
    inside = struct.pack(">h", codec) + batch[_OUTSIDE_CRC.size + 2 : _HEADER_BYTES] + records
    length = _OUTSIDE_CRC.size + len(inside) - _LENGTH_COUNTS_FROM
    return _OUTSIDE_CRC.pack(base_offset, length, epoch, magic, _crc32c(inside)) + inside


def _without_checksum(records: Sequence[PlainRecord]) -> bytes:
    first = records[0]
    body = bytearray()
    for delta, record in enumerate(records):
        assert record.offset == first.offset + delta
        inner = b"\0" + _varint(record.timestamp_ms - first.timestamp_ms) + _varint(delta)
        inner += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
        for name, value in record.headers:
            inner += _sized(name.encode()) + _sized(value)
        body += _varint(len(inner)) + inner
    newest = max(record.timestamp_ms for record in records)
    inside = _INSIDE_CRC.pack(0, len(records) - 1, first.timestamp_ms, newest, -1, -1, -1, len(records)) + bytes(body)
    return _OUTSIDE_CRC.pack(first.offset, 0, 0, 2, 0) + inside


def decode(batches: bytes, start: int, end: int) -> Iterator[PlainRecord]:
    """The records `[start, end)` of batches back to back."""
    at = 0
    while at < len(batches):
        base_offset, length, _, magic, crc = _OUTSIDE_CRC.unpack_from(batches, at)
        stop = at + _LENGTH_COUNTS_FROM + length
        at += _OUTSIDE_CRC.size
        assert magic == 2
        assert _crc32c(batches[at:stop]) == crc
        attributes, _, base_timestamp, _, _, _, _, count = _INSIDE_CRC.unpack_from(batches, at)
        assert attributes & 0b111 == 0, "compressed"
        at += _INSIDE_CRC.size
        for _ in range(count):
            record, at = _decode_record(batches, at, base_offset, base_timestamp)
            if start <= record.offset < end:
                yield record
        assert at == stop


def _decode_record(data: bytes, at: int, base_offset: int, base_timestamp: int) -> tuple[PlainRecord, int]:
    length, at = _read_varint(data, at)
    stop = at + length
    timestamp_delta, at = _read_varint(data, at + 1)
    offset_delta, at = _read_varint(data, at)
    key, at = _read_sized(data, at)
    value, at = _read_sized(data, at)
    count, at = _read_varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _read_sized(data, at)
        content, at = _read_sized(data, at)
        assert name is not None
        headers.append((name.decode(), content))
    assert at == stop
    record = PlainRecord(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, tuple(headers))
    return record, at


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C_TABLE = _crc32c_table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
