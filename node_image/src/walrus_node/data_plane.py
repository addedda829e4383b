"""The data plane of this process: what it is opened with, and how it hears of the metadata."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import walrus_core

from walrus_node.client_listener import ClientListener
from walrus_node.config import Config
from walrus_node.ending import DATA_REFUSED, FAILED, PORT_IN_USE, StartError
from walrus_node.entrance import Entered
from walrus_node.ground import Ground
from walrus_node.metadata.machine import ClusterState
from walrus_node.policy import rollover_policy
from walrus_node.presence import LEASE_MS

log = logging.getLogger(__name__)


async def open_data_plane(
    ground: Ground, entered: Entered, progress: walrus_core.OpenProgress
) -> walrus_core.DataPlane:
    """Open the store and the listeners of a node that is in a cluster; raises `StartError`.

    Meanwhile *progress* tells how far the open of the store is.
    """
    options = json.dumps(_options(ground, entered))
    try:
        return await asyncio.to_thread(walrus_core.DataPlane, options, progress)
    except walrus_core.AddressInUse as error:
        raise StartError(
            f"{error}; another port: --client-port, --grpc-port, --kafka-port, --peer-port", PORT_IN_USE
        ) from None
    except (walrus_core.Locked, walrus_core.UnsupportedFormat, walrus_core.CorruptionError) as error:
        raise StartError(f"data directory {ground.config.data_dir}: {error}", DATA_REFUSED) from None
    except (walrus_core.WalrusError, OSError) as error:
        raise StartError(f"the data plane cannot start: {error}", FAILED) from None


def told_opening(percent: int | None) -> str:
    """What keeps a node that opens its store, in steps of ten: whoever writes it down does so ten times at most."""
    seen = "" if percent is None else f", {percent // 10 * 10} % of its logs and files are read"
    return f"data plane: opening the store{seen}"


def _options(ground: Ground, entered: Entered) -> dict[str, object]:
    config = ground.config
    options: dict[str, object] = {
        "data_dir": str(config.data_dir),
        "cluster_id": str(entered.cluster_id),
        "node_id": entered.node_id,
        "disk": str(entered.identity.disk),
        "process": str(ground.process),
        "text_address": str(config.text),
        "grpc_address": str(config.grpc),
        "peer_address": str(config.peer),
        "listeners": [_listener(listener) for listener in config.listeners],
        "advertise_host": config.advertise_host,
        "backend": config.backend,
        "fsync": config.fsync,
        "segment_entries_max": config.segment_entries_max,
        "segment_bytes_max": config.segment_bytes_max,
        "segment_age_ms_max": config.segment_age_ms_max,
        "segment_age_ms_min": config.segment_age_ms_min,
        "monitor_check_ms": config.monitor_check_ms,
        "auto_create_topics": config.auto_create_topics,
        "frame_bytes_max": config.frame_bytes_max,
        "lease_ms": LEASE_MS,
        "test_controls": config.test_controls,
        "is_only_node": ground.is_alone,
        **config.limits.options(),
    }
    if config.memory_budget_bytes is not None:
        options["memory_budget_bytes"] = config.memory_budget_bytes
    if config.otlp_endpoint is not None:
        options["spans"] = {"endpoint": config.otlp_endpoint, "share": config.otlp_share}
    if config.secret_file:
        options["secret_file"] = str(config.secret_file)
    if config.test_wire:
        options["wire_versions"] = dict(zip(("oldest", "newest"), config.test_wire, strict=True))
    return options


def _listener(listener: ClientListener) -> dict[str, object]:
    told = "" if listener.is_told_by_file else str(listener.advertise) if listener.advertise else None
    return {
        "protocol": listener.protocol,
        "name": listener.name,
        "org": listener.org,
        "address": str(listener.bind),
        "advertise": told,
        "admin": listener.admin,
    }


@dataclass(frozen=True)
class StoreReport:
    """The backend of the store that is in use, and how it writes what it syncs; empty where there is nothing to say."""

    backend: str = ""
    refused: str = ""
    """Why another backend is not used."""
    synced_writes: str = ""
    """`direct`, or `cached`: into the page cache, which is synced then."""
    cached: str = ""
    """Why writes are not direct."""

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> StoreReport:
        """Read what `walrus_core.DataPlane.store_report` gives."""
        return cls(found["backend"], found["refused"] or "", found["synced_writes"], found["cached"] or "")


class DataPlane(Protocol):
    """What a feed uses of `walrus_core.DataPlane`."""

    def configure(self, config_json: str) -> None: ...
    def publish(self, metadata: walrus_core.Metadata) -> None: ...


class Feed:
    """Gives the data plane each published state, and the rollover policy where it has become another one."""

    def __init__(self, data_plane: DataPlane, config: Config) -> None:
        """*data_plane* has been opened with *config*."""
        self._data_plane = data_plane
        self._config = config
        self._policy = rollover_policy(config, {})

    def take(self, state: ClusterState) -> None:
        """Pass a state on; one call at a time."""
        policy = rollover_policy(self._config, state.config.entries)
        if policy != self._policy:
            self._data_plane.configure(json.dumps(policy))
            self._policy = policy
            log.info("rollover policy of settings version %d: %s", state.config.version, policy)
        self._data_plane.publish(state.metadata)
