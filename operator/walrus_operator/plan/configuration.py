"""What brokers are told while they run: replication, settings of the cluster, what each of them logs. Pure."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.config import LOG_LEVEL, LOG_LEVEL_DEFAULT
from walrus_operator.desired.config import entries
from walrus_operator.desired.names import SETTINGS
from walrus_operator.observe.snapshot import Replication, Snapshot
from walrus_operator.plan.accepted import kept_in
from walrus_operator.plan.actions import Action, SetConfig, SetLogLevel, SetReplication


def configure(spec: ClusterSpec, snapshot: Snapshot) -> tuple[Action, ...]:
    """What the brokers do not have yet."""
    return (*_replicate(spec, snapshot), *_set_entries(spec, snapshot), *_set_levels(spec, snapshot))


def remembered(spec: ClusterSpec, snapshot: Snapshot) -> frozenset[str]:
    """The settings to keep in mind as those of `config.dynamic`: brokers shall have them, or have them still.

    They are kept before brokers are told, and forgotten after brokers have taken them back, so none is left behind by
    an operator that dies in between.
    """
    return frozenset(spec.config.dynamic) | {name for name in _known(snapshot) if _is_there(name, snapshot)}


def _known(snapshot: Snapshot) -> frozenset[str]:
    """The settings that came from `config.dynamic`, as they were kept last."""
    found = snapshot.objects.get(kept_in(snapshot))
    told = found.get("data", {}).get(SETTINGS, "") if found is not None and snapshot.cluster.owns(found) else ""
    return frozenset(filter(None, told.split(",")))


def _is_there(name: str, snapshot: Snapshot) -> bool:
    """Whether brokers have the setting, as far as anybody can tell."""
    if name == LOG_LEVEL:
        told = {broker.log_level if broker is not None else None for broker in snapshot.brokers.values()}
        return not told or told != {LOG_LEVEL_DEFAULT}
    return snapshot.config is None or name in snapshot.config.entries


def _replicate(spec: ClusterSpec, snapshot: Snapshot) -> tuple[SetReplication, ...]:
    """Once so many brokers serve: before, no new segment would find its write quorum."""
    wanted = Replication(spec.replication.factor, spec.replication.acknowledged_by)
    told = snapshot.replication()
    members = [name for name, broker in snapshot.brokers.items() if broker is not None and broker.cluster_id]
    serving = sum(snapshot.pods[name].ready for name in members)
    return () if told in (None, wanted) or serving < wanted.factor else (SetReplication(wanted),)


def _set_entries(spec: ClusterSpec, snapshot: Snapshot) -> tuple[SetConfig, ...]:
    """Settings that differ, and those that the spec has no more; what others have set beside them stays as it is."""
    if snapshot.config is None:
        return ()
    wanted, found = entries(spec), snapshot.config.entries
    different = {name: value for name, value in wanted.items() if found.get(name) != value}
    unset = tuple(sorted(name for name in _known(snapshot) - wanted.keys() if name in found))
    return (SetConfig(different, snapshot.config.version, unset),) if different or unset else ()


def _set_levels(spec: ClusterSpec, snapshot: Snapshot) -> tuple[SetLogLevel, ...]:
    """Brokers that log something else; one that does not tell what it logs is left alone."""
    wanted = spec.config.log_level
    if wanted is None and LOG_LEVEL not in _known(snapshot):
        return ()
    level = wanted or LOG_LEVEL_DEFAULT
    return tuple(
        SetLogLevel(name, level)
        for name, broker in sorted(snapshot.brokers.items())
        if broker is not None and broker.log_level not in ("", level)
    )
