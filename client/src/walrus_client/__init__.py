"""Walrus for Python programs: `Client`, its `Producer`, and the errors they raise.

No native code and no dependency on the broker; `walrus_client.dev` runs local clusters, `walrus_client.text` speaks the
text protocol, `walrus_client.admin` administers a cluster.
"""

from walrus_client.client import Client
from walrus_client.errors import (
    CorruptionError,
    Fenced,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    NoSpace,
    NotLeader,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    RejectedError,
    RetryableError,
    TooLarge,
    TopicExists,
    Unavailable,
    UnknownNode,
    UnknownSegment,
    UnknownTopic,
    VersionMismatch,
    WalrusError,
)
from walrus_client.model import (
    Appended,
    BatchPage,
    Header,
    Node,
    Partition,
    Record,
    Segment,
    SegmentState,
    Topic,
)
from walrus_client.outbox import OutRecord
from walrus_client.producer import Producer
from walrus_client.sender import ProducerOptions, ProducerStats

__all__ = [
    "Appended",
    "BatchPage",
    "Client",
    "CorruptionError",
    "Fenced",
    "Header",
    "InvalidConfig",
    "InvalidRequest",
    "InvalidTopic",
    "NoSpace",
    "Node",
    "NotLeader",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutRecord",
    "OutcomeUnknown",
    "Partition",
    "Producer",
    "ProducerFenced",
    "ProducerOptions",
    "ProducerStats",
    "Record",
    "RejectedError",
    "RetryableError",
    "Segment",
    "SegmentState",
    "TooLarge",
    "Topic",
    "TopicExists",
    "Unavailable",
    "UnknownNode",
    "UnknownSegment",
    "UnknownTopic",
    "VersionMismatch",
    "WalrusError",
]
