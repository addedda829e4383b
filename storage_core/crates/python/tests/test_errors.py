"""Each kind of a Rust error raises its exception, with its name and its facts."""

import json

import pytest
import walrus_core

GOOD = walrus_core.encode_batch([b"hello"], timestamps_ms=[1000], producer_id=7, producer_epoch=1, base_sequence=9)
SIZE = len(GOOD)


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def forged(position: int, data: bytes) -> bytes:
    """The good batch with other bytes, and the checksum right."""
    batch = bytearray(GOOD)
    batch[position : position + len(data)] = data
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "exception", "reason", "facts"),
    [
        (GOOD[:60], walrus_core.CorruptionError, "Truncated", {"needed": 61, "available": 60}),
        (GOOD[:-1], walrus_core.CorruptionError, "Truncated", {"needed": SIZE, "available": SIZE - 1}),
        (forged(16, b"\x01"), walrus_core.CorruptionError, "UnsupportedMagic", {"found": 1}),
        (forged(8, bytes(4)), walrus_core.CorruptionError, "InvalidLength", {"length": 0, "least": 49}),
        (
            forged(57, bytes(4)),
            walrus_core.InvalidBatch,
            "InvalidCount",
            {"records": 0, "last_offset_delta": 0, "bytes": SIZE},
        ),
        (
            forged(0, b"\xff" * 8),
            walrus_core.CorruptionError,
            "InvalidOffset",
            {"base_offset": -1, "last_offset_delta": 0},
        ),
        (forged(22, b"\x07"), walrus_core.InvalidBatch, "UnknownCodec", {"codec": 7}),
        (forged(22, b"\x20"), walrus_core.CorruptionError, "Control", {}),
        (
            forged(53, b"\xff" * 4),
            walrus_core.InvalidBatch,
            "InvalidProducer",
            {"id": 7, "epoch": 1, "base_sequence": -1},
        ),
        (
            forged(22, b"\x04"),
            walrus_core.InvalidBatch,
            "Unopened",
            {"codec": "zstd", "reason": "Unknown frame descriptor"},
        ),
        (
            forged(61, b"\x01"),
            walrus_core.CorruptionError,
            "InvalidRecord",
            {"index": 0, "reason": "length is negative"},
        ),
    ],
)
def test_a_wrong_batch_raises_its_kind_with_its_facts(
    batch: bytes, exception: type[walrus_core.WalrusError], reason: str, facts: dict[str, object]
) -> None:
    with pytest.raises(exception) as raised:
        walrus_core.decode_batches(batch)
    assert (raised.value.reason, raised.value.facts) == (reason, facts)
    assert type(raised.value) is exception


def test_a_wrong_checksum_tells_both() -> None:
    with pytest.raises(walrus_core.CorruptionError) as raised:
        walrus_core.decode_batches(GOOD[:-1] + b"!")
    facts = raised.value.facts
    assert raised.value.reason == "ChecksumMismatch"
    assert facts["stored"] == crc32c(GOOD[21:])
    assert facts["computed"] == crc32c(GOOD[21:-1] + b"!")


def test_what_cannot_be_a_batch_is_refused() -> None:
    with pytest.raises(walrus_core.InvalidBatch) as raised:
        walrus_core.encode_batch([], timestamps_ms=[])
    assert raised.value.reason == "InvalidCount"
    with pytest.raises(walrus_core.InvalidBatch) as raised:
        walrus_core.encode_batch([b"v"], timestamps_ms=[1], producer_id=1, base_sequence=-1)
    assert raised.value.reason == "InvalidProducer"


@pytest.mark.parametrize(
    ("snapshot", "exception", "reason"),
    [
        (b"{", walrus_core.CorruptionError, "Damaged"),
        (b'{"snapshot_version": 99}', walrus_core.UnsupportedFormat, "UnsupportedVersion"),
    ],
)
def test_a_snapshot_that_cannot_be_read_says_why(
    snapshot: bytes, exception: type[walrus_core.WalrusError], reason: str
) -> None:
    with pytest.raises(exception) as raised:
        walrus_core.Metadata.restore(snapshot)
    assert raised.value.reason == reason


def test_a_refused_command_carries_the_facts_of_the_refusal() -> None:
    command = {"v": 9, "command": "of a newer node"}
    with pytest.raises(walrus_core.Rejected) as raised:
        walrus_core.Metadata().apply(json.dumps(command).encode())
    assert (raised.value.reason, raised.value.facts) == ("UnsupportedVersion", {"got": 9, "supported": 1})
    assert "upgrade" in str(raised.value)
