"""Configuration: what all brokers share in a ConfigMap, what can change while they run as metadata entries."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec, Fsync, FsyncMode, Replication
from walrus_operator.api.units import bytes_of, milliseconds_of
from walrus_operator.desired import names as n
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.objects import CONFIG_MAP, Manifest


def config_map(owner: Owner) -> Manifest:
    """Environment of every broker. Nothing of the spec is in it: a pod that restarts must come back as it was."""
    names = owner.names
    data = {
        "WALRUS_BIND_HOST": "0.0.0.0",  # noqa: S104 - a pod's network is its own
        "WALRUS_DATA_DIR": n.DATA_DIR,
        "WALRUS_JOIN": f"{names.brokers}.{names.namespace}.svc:{n.RAFT_PORT}",
    }
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


def accepted_map(owner: Owner, spec: str, cluster_id: str) -> Manifest:
    """Keeps the last spec that was accepted, as JSON, and which cluster it is. A status may be pruned; this is not."""
    data = {n.ACCEPTED_SPEC: spec} | ({n.CLUSTER_ID: cluster_id} if cluster_id else {})
    return object_of(owner, CONFIG_MAP, owner.names.accepted, data=data)


def entries(spec: ClusterSpec) -> dict[str, int]:
    """The dynamic configuration: keys and values of `SetConfig`."""
    segments = spec.segments
    return {
        "segments.max_entries": segments.max_entries,
        "segments.max_bytes": bytes_of(segments.max_bytes),
        "segments.max_age_ms": milliseconds_of(segments.max_age) if segments.max_age else 0,
        "segments.check_interval_ms": milliseconds_of(segments.check_interval),
    }


def fsync_flag(fsync: Fsync) -> str:
    """What a broker's `--fsync` takes."""
    if fsync.mode is FsyncMode.INTERVAL and fsync.interval is not None:
        return f"{milliseconds_of(fsync.interval)}ms"
    return str(fsync.mode)
