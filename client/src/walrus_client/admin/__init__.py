"""The admin service of a node: who it is, how the cluster is, settings. `AdminClient`, and what it hands out."""

from walrus_client.admin.client import AdminClient
from walrus_client.admin.model import Config, Identity, MetadataRole, MetadataStatus, NodeView, Status, Storage

__all__ = ["AdminClient", "Config", "Identity", "MetadataRole", "MetadataStatus", "NodeView", "Status", "Storage"]
