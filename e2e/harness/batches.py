"""Kafka's RecordBatch v2 as it lies on a disk: where batches end, and the values in them. Pure; not the engine's code.

Checksums are neither made nor looked at: whoever found the bytes has done it. Batches are not compressed.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct(">qiibIhiqqqhii")  # up to the records
_LENGTH_FROM = 12  # the length counts what follows it
_MARK = slice(
    12, 16
)  # the leader epoch; on a disk a checksum over store and place, so that no two copies have it alike
_COMPRESSION = 0x7


class BatchError(ValueError):
    """These bytes are no batches."""


@dataclass(frozen=True)
class Batch:
    """One batch; `content` is all of it, with zeros where a disk has its mark."""

    base_offset: int
    end_offset: int
    content: bytes


def encode(base_offset: int, *contents: bytes | None, attributes: int = 0) -> bytes:
    """A batch of these values, for tests."""
    records = b""
    for delta, content in enumerate(contents):
        value = _as_varint(-1) if content is None else _as_varint(len(content)) + content
        body = b"\0" + _as_varint(0) + _as_varint(delta) + _as_varint(-1) + value + _as_varint(0)
        records += _as_varint(len(body)) + body
    length, count = _HEADER.size - _LENGTH_FROM + len(records), len(contents)
    return _HEADER.pack(base_offset, length, 0, 2, 0, attributes, count - 1, 0, 0, -1, -1, -1, count) + records


def split(content: bytes) -> Iterator[Batch]:
    """The batches that lie back to back in *content*."""
    position = 0
    while position < len(content):
        if position + _HEADER.size > len(content):
            raise BatchError(f"{len(content) - position} bytes are left at {position}: no header of a batch")
        base, length, _epoch, magic, _crc, _attributes, last, *_ = _HEADER.unpack_from(content, position)
        end = position + _LENGTH_FROM + length
        if magic != 2 or length < _HEADER.size - _LENGTH_FROM or end > len(content):
            raise BatchError(f"at {position} stands no batch: magic {magic}, length {length}")
        batch = bytearray(content[position:end])
        batch[_MARK] = bytes(4)
        yield Batch(base, base + last + 1, bytes(batch))
        position = end


def values(batch: Batch) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of each record."""
    content = batch.content
    header = _HEADER.unpack_from(content)
    attributes, count = header[5], header[-1]
    if attributes & _COMPRESSION:
        raise BatchError(f"the batch at offset {batch.base_offset} is compressed")
    position = _HEADER.size
    for _ in range(count):
        length, position = _varint(content, position)
        following = position + length
        _timestamp, at = _varint(content, position + 1)
        delta, at = _varint(content, at)
        key_bytes, at = _varint(content, at)
        at += max(key_bytes, 0)
        value_bytes, at = _varint(content, at)
        yield batch.base_offset + delta, None if value_bytes < 0 else content[at : at + value_bytes]
        position = following


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    number = shift = 0
    while True:
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _as_varint(number: int) -> bytes:
    encoded, rest = bytearray(), (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])
