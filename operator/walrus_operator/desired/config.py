"""Configuration: what all brokers share in a ConfigMap, what can change while they run as metadata entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from walrus_operator.api.cluster import ClusterSpec, Fsync, FsyncMode, Replication
from walrus_operator.api.units import bytes_of, milliseconds_of
from walrus_operator.desired import names as n
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.disks import Disk
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.desired.remade import noted
from walrus_operator.objects import CONFIG_MAP, Manifest


def config_map(owner: Owner, log_level: str | None) -> Manifest:
    """Environment of every broker. A pod that restarts must come back as it was: of the spec it has what brokers are
    told while they run, too.
    """
    names = owner.names
    data = {
        "WALRUS_BIND_HOST": "0.0.0.0",  # noqa: S104 - a pod's network is its own
        "WALRUS_DATA_DIR": n.DATA_DIR,
        "WALRUS_JOIN": f"{names.brokers}.{names.namespace}.svc:{n.RAFT_PORT}",
    }
    if log_level is not None:
        data["WALRUS_LOG_LEVEL"] = log_level
    return object_of(owner, CONFIG_MAP, names.config, data=data)


def bootstrap_map(owner: Owner, founder: str, untold: str, replication: Replication, brokers: int) -> Manifest:
    """Names the broker that founds the cluster, on an empty disk only, and what it founds it with.

    A majority of *brokers*, all that there shall be, must be empty then. The name behind which they are has no address
    of those that are away, so that alone it would not keep an emptied founder from founding again.
    """
    data = {
        "name": founder,
        "nodes": str(brokers),
        "factor": str(replication.factor),
        "writeQuorum": str(replication.acknowledged_by),
    }
    made = object_of(owner, CONFIG_MAP, owner.names.bootstrap, data=data)
    if untold:
        made["metadata"]["annotations"] = {n.UNTOLD: untold}
    return made


def accepted_map(owner: Owner, spec: str, cluster_id: str, settings: Iterable[str]) -> Manifest:
    """Keeps the last spec that was accepted, as JSON, and which cluster it is. A status may be pruned; this is not.

    *settings* are those that brokers have from `config.dynamic`: one that is taken out of it is taken back there.
    """
    data = {n.ACCEPTED_SPEC: spec} | ({n.CLUSTER_ID: cluster_id} if cluster_id else {})
    if told := ",".join(sorted(settings)):
        data[n.SETTINGS] = told
    return object_of(owner, CONFIG_MAP, owner.names.accepted, data=data)


def departures_map(owner: Owner, departures: Mapping[str, Departure]) -> Manifest:
    """Keeps which brokers go, and which disks left with their claims kept: by pod, with the disk and its claim."""
    data = {pod: departure.text() for pod, departure in sorted(departures.items())}
    return object_of(owner, CONFIG_MAP, owner.names.departures, data=data)


def disks_map(owner: Owner, disks: Mapping[str, Disk]) -> Manifest:
    """Keeps which disk each broker is on: by pod, with the claim that bears it."""
    data = {pod: disk.text() for pod, disk in sorted(disks.items())}
    return object_of(owner, CONFIG_MAP, owner.names.disks, data=data)


def remade_map(owner: Owner, sets: Mapping[str, Manifest]) -> Manifest:
    """Keeps the StatefulSets that are made anew, as they were, by pool."""
    return object_of(owner, CONFIG_MAP, owner.names.remade, data={pool: noted(sets[pool]) for pool in sorted(sets)})


def entries(spec: ClusterSpec) -> dict[str, int]:
    """The dynamic configuration: keys and values of `SetConfig`."""
    segments = spec.segments
    return {
        "segments.max_entries": segments.max_entries,
        "segments.max_bytes": bytes_of(segments.max_bytes),
        "segments.max_age_ms": milliseconds_of(segments.max_age) if segments.max_age else 0,
        "segments.check_interval_ms": milliseconds_of(segments.check_interval),
        **spec.config.entries,
    }


def fsync_flag(fsync: Fsync) -> str:
    """What a broker's `--fsync` takes."""
    if fsync.mode is FsyncMode.INTERVAL and fsync.interval is not None:
        return f"{milliseconds_of(fsync.interval)}ms"
    return str(fsync.mode)
