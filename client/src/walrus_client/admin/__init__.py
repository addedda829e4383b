"""The admin service: who a node is, how the cluster is, settings, members. `AdminClient`, and what it hands out."""

from walrus_client.admin.client import AdminClient
from walrus_client.admin.model import (
    Config,
    Copies,
    CopyView,
    Drain,
    Identity,
    LostPartition,
    LostTopic,
    LostTopics,
    MetadataRole,
    MetadataStatus,
    NodeView,
    Replication,
    SegmentView,
    Status,
    StopImpact,
    Storage,
)

__all__ = [
    "AdminClient",
    "Config",
    "Copies",
    "CopyView",
    "Drain",
    "Identity",
    "LostPartition",
    "LostTopic",
    "LostTopics",
    "MetadataRole",
    "MetadataStatus",
    "NodeView",
    "Replication",
    "SegmentView",
    "Status",
    "StopImpact",
    "Storage",
]
