"""The storage engine, data plane and metadata of Walrus.

Everything is in Rust; `_native.pyi` documents it. Calls that wait release the interpreter lock.
"""

from walrus_core._native import (
    AddressInUse,
    BinaryColumn,
    Buffer,
    Columns,
    CorruptionError,
    Cursor,
    DataPlane,
    HeadersColumn,
    InvalidBatch,
    Locked,
    Metadata,
    OffsetOutOfRange,
    OutcomeUnknown,
    Rejected,
    RejectedError,
    RetryableError,
    UnsupportedFormat,
    Walrus,
    WalrusError,
    decode_batches,
    encode_batch,
    init_logging,
)

__all__ = [
    "AddressInUse",
    "BinaryColumn",
    "Buffer",
    "Columns",
    "CorruptionError",
    "Cursor",
    "DataPlane",
    "HeadersColumn",
    "InvalidBatch",
    "Locked",
    "Metadata",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "Rejected",
    "RejectedError",
    "RetryableError",
    "UnsupportedFormat",
    "Walrus",
    "WalrusError",
    "decode_batches",
    "encode_batch",
    "init_logging",
]
