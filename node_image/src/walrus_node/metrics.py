"""Prometheus metrics of the control plane; read from the parts when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from walrus_node.metadata.reports import CopyProgress
from walrus_node.metadata.store import Status


class View(Protocol):
    """What the metrics show of the node; it is asked anew for each page."""

    def missing(self) -> list[str]: ...
    def raft_status(self) -> Status | None: ...
    def copies(self) -> CopyProgress | None: ...


def build_registry(view: View) -> CollectorRegistry:
    """A registry of its own: nothing here is global."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_NodeCollector(view))
    return registry


class _NodeCollector(Collector):
    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge("walrus_node_ready", "1 if the node takes requests", not self._view.missing())
        copies = self._view.copies()
        for name, count in ({} if copies is None else asdict(copies)).items():
            yield _gauge(f"walrus_cluster_copies_{name}", _COPIES[name], count)
        status = self._view.raft_status()
        if status is None:
            return
        yield _gauge("walrus_metadata_term", "Raft term", status.term)
        yield _gauge("walrus_metadata_leader", "1 if this node believes to lead the metadata", status.is_leader)
        yield _gauge("walrus_metadata_has_leader", "1 if a metadata leader is known", status.leader is not None)
        yield _gauge("walrus_metadata_commit_index", "Last committed entry", status.commit_index)
        yield _gauge("walrus_metadata_applied_index", "Last applied entry", status.applied_index)
        yield _gauge("walrus_metadata_last_index", "Last entry of the log", status.last_index)
        yield _gauge("walrus_metadata_version", "Version of the metadata", status.version)
        yield _gauge("walrus_metadata_voters", "Disks that vote", len(status.voters()))
        connected = sum(member.connected for member in status.members if member.voter)
        yield _gauge("walrus_metadata_voters_connected", "Voters that this node is connected to, itself too", connected)


# Told by the metadata leader alone.
_COPIES = {
    "under_replicated": "Sealed segments with fewer verified copies than there should be on nodes that stay",
    "without_copy": "Sealed segments without a verified copy on a node that stays",
    "moving": "Copies of sealed segments that are being made",
    "damaged": "Copies of sealed segments with damage that their holders cannot mend",
    "lost": "Sealed segments that no node has any more",
    "in_one_zone": "Segments that the loss of one zone would leave without a quorum, or sealed ones without a copy",
}


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
