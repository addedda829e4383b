"""The status of a cluster, from what was seen, planned and done. Two looks at the same cluster give the same status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from walrus_operator.api.cluster import AutoGrow, ClusterSpec
from walrus_operator.api.status import (
    BrokerRow,
    ClusterStatus,
    ConfigRow,
    LevelRow,
    MemberRow,
    PlanRow,
    PoolRow,
    ReplicationRow,
)
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Broker, Member, Replication, Snapshot
from walrus_operator.plan.actions import REFUSED, Done, EnlargeClaim, Gate, Plan, RemakeSet, Wait
from walrus_operator.plan.auto_growth import is_at_its_end
from walrus_operator.plan.pools import volume_size
from walrus_operator.plan.stranded import stranded
from walrus_operator.status.conditions import HOLDING, RESIZING, STEP, Facts, answers, conditions
from walrus_operator.status.forecast import settled
from walrus_operator.status.listeners import listener_rows

_ANSWERED = frozenset({"Serving", "NotReady", "Unreachable", "Waiting"})
_DETAIL = 300
_POOLS = 64
_UNKNOWN: Mapping[str, datetime | None] = {}


def derive(
    snapshot: Snapshot, plan: Plan, done: Done, now: datetime, forecasts: Mapping[str, datetime | None] = _UNKNOWN
) -> dict[str, Any]:
    """The status as the API server shall have it: of the spec in force, and what of the present one is refused.

    *forecasts* tell when the disks of pods are full.
    """
    spec = plan.spec
    before = snapshot.cluster.status
    full = {row["pod"]: settled(row["pod"], forecasts, row.get("diskFullAt"), now) for row in before.get("brokers", ())}
    waits = (*done.waits, *plan.waits)
    rows = _rows(spec, snapshot, before, waits, full)
    leading = snapshot.leader()
    leader = leading[0] if leading else None
    desired = spec.brokers if spec else before.get("replicas", 0)
    replication = Replication(spec.replication.factor, spec.replication.acknowledged_by) if spec else None
    hibernates = spec is not None and spec.hibernate
    facts = Facts(
        snapshot,
        rows,
        desired,
        replication,
        leader,
        plan.outdated,
        done.actions,
        waits,
        _exhausted(spec, snapshot),
        hibernates,
    )
    answered = answers(facts)
    generation = snapshot.cluster.generation
    known = [broker for broker in snapshot.brokers.values() if broker is not None]
    told = snapshot.cluster_ids()
    status = ClusterStatus(
        observed_generation=generation,
        cluster_id=next(iter(told)) if len(told) == 1 else before.get("clusterId"),
        phase=_phase(snapshot, rows, desired, waits, plan, hibernates=hibernates),
        replicas=desired,
        ready_replicas=sum(row.state == "Serving" for row in rows),
        leader=leader,
        version=", ".join(sorted({broker.version for broker in known if broker.version})) or before.get("version"),
        backend=", ".join(sorted({broker.backend_in_use for broker in known if broker.backend_in_use}))
        or before.get("backend"),
        term=max((broker.term for broker in known), default=before.get("term")),
        replication=_replication(snapshot),
        under_replicated=max((broker.under_replicated for broker in known), default=before.get("underReplicated")),
        level=_level(snapshot),
        plan=_plan(plan, done, waits),
        config=_config(snapshot, known),
        pools=_pools(spec, snapshot, rows, plan.outdated),
        brokers=rows,
        members=_members(snapshot),
        listeners=listener_rows(spec, snapshot) if spec else None,
        conditions=conditions(answered, before, generation, now),
    )
    made: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


def _exhausted(spec: ClusterSpec | None, snapshot: Snapshot) -> dict[str, AutoGrow]:
    """Pools whose claims grow by themselves and are as large as they may be."""
    pools = [pool for pool in spec.pools if is_at_its_end(pool, snapshot)] if spec is not None else []
    return {pool.name: auto for pool in pools if (claim := pool.storage.claim) and (auto := claim.auto_grow)}


def _rows(
    spec: ClusterSpec | None,
    snapshot: Snapshot,
    before: Mapping[str, Any],
    waits: Sequence[Wait],
    full: Mapping[str, str | None],
) -> list[BrokerRow]:
    """A row for every pod that there is, and every one that there should be; the last ones, where none can be seen."""
    if snapshot.hides_brokers():
        return [BrokerRow.model_validate(row) for row in before.get("brokers", ())]
    names = snapshot.cluster.names
    expected = {
        names.pod(pool, ordinal): pool
        for pool, found in snapshot.sets().items()
        for ordinal in range(int(found["spec"].get("replicas", 0)))
    }
    if spec is not None and not expected:
        expected = {names.pod(pool.name, ordinal): pool.name for pool in spec.pools for ordinal in range(pool.replicas)}
    former = {row["pod"]: row for row in before.get("brokers", ())}
    pods = {**expected, **{name: pod.pool for name, pod in snapshot.pods.items()}}
    return [
        _row(
            name,
            pool,
            snapshot,
            former.get(name, {}),
            waits_for=[wait.detail for wait in waits if wait.about == name],
            full_at=full.get(name),
        )
        for name, pool in sorted(pods.items(), key=lambda item: (item[1], len(item[0]), item[0]))
    ]


def _row(
    name: str,
    pool: str,
    snapshot: Snapshot,
    before: Mapping[str, Any],
    *,
    waits_for: Sequence[str],
    full_at: str | None,
) -> BrokerRow:
    pod, broker = snapshot.pods.get(name), snapshot.brokers.get(name)
    state = _state(pod, broker, before)
    row: dict[str, Any] = {"pod": name, "pool": pool, "state": state, "drain_percent": _drained(name, snapshot)}
    claim = snapshot.claims.get(snapshot.cluster.names.claim(name))
    if claim is not None:
        row |= {"claim_size": claim.has or None, "claim_state": claim.state}
    if pod is not None:
        row |= {"node": pod.node, "restarts": pod.restarts}
    if state != "Serving":
        why = [
            *waits_for,
            pod.trouble or "" if pod is not None else "",
            *(broker.missing if broker is not None else ()),
        ]
        row["detail"] = "; ".join(filter(None, why))[:_DETAIL] or None
    if broker is not None:
        row |= {
            "uuid": broker.disk or None,
            "id": broker.node_id or None,
            "role": broker.role or None,
            "zone": next((member.zone for member in snapshot.members() if member.disk == broker.disk), "") or None,
            "segments_led": broker.segments_led,
            "backend": broker.backend_in_use or None,
            "synced_writes": broker.synced_writes or None,
            "cached_reason": broker.cached_reason or None,
            "disk_percent": _percent(broker, before.get("diskPercent")),
            "disk_full_at": full_at,
            "version": broker.version or None,
            "level_known": broker.level_known or None,
            "wire_versions": str(broker.wire) if broker.wire is not None else None,
        }
        if broker.backend_asked not in ("auto", broker.backend_in_use) and broker.backend_in_use:
            row["backend_reason"] = broker.backend_reason or f"{broker.backend_asked} was asked for"
    return BrokerRow(**row)


def _drained(name: str, snapshot: Snapshot) -> int | None:
    """How much it has handed over of what it stored when it began to go; None where it does not go."""
    departure = snapshot.departures().get(name)
    drain = snapshot.drains.get(departure.disk) if departure is not None else None
    if departure is None or drain is None:
        return None
    if drain.done:
        return 100
    return max(0, min(99, 100 - 100 * drain.held // max(departure.held, 1)))


def _state(pod: Pod | None, broker: Broker | None, before: Mapping[str, Any]) -> str:
    if pod is None:
        return "Absent"
    if pod.deleting:
        return "Stopping"
    if not pod.running:
        return "Pending"
    if broker is None:
        # One that was there is cut off, or hangs; only one that never answered since it was started is starting.
        answered = before.get("state") in _ANSWERED and before.get("restarts") == pod.restarts
        return "Unreachable" if pod.ready or answered else "Starting"
    if not broker.cluster_id:
        return "Waiting"
    return "Serving" if pod.ready else "NotReady"


def _percent(broker: Broker, before: int | None) -> int | None:
    """How full the disk is, in steps; a figure near a step does not go to and fro, as each change would be a write."""
    if broker.bytes_total <= 0:
        return None
    exact = 100 * (broker.bytes_total - broker.bytes_free) / broker.bytes_total
    if before is not None and before - STEP / 2 <= exact < before + 1.5 * STEP:
        return before
    return int(exact // STEP) * STEP


def _phase(
    snapshot: Snapshot,
    rows: Sequence[BrokerRow],
    desired: int,
    waits: Sequence[Wait],
    plan: Plan,
    *,
    hibernates: bool,
) -> str:
    gates = {wait.gate for wait in waits}
    if Gate.PAUSED in gates:
        return "Paused"
    if Gate.INVALID in gates:
        return "Invalid"
    if hibernates:
        return "Hibernating" if snapshot.pods else "Hibernated"
    if not snapshot.cluster_ids():
        return "Creating"
    if snapshot.lost_cluster():
        return "Lost"
    lacking = any(row.state != "Serving" for row in rows) or bool(snapshot.lost_disks())
    begun = any(departure.lost for departure in snapshot.departures().values())
    if lacking and (begun or snapshot.cluster.status.get("phase") == "Replacing"):
        return "Replacing"
    if len(rows) < desired or (lacking and snapshot.cluster.status.get("phase") == "Growing"):
        return "Growing"
    if _going(snapshot):
        return "Shrinking"
    if Gate.DRAINING in gates:
        return "Draining"
    if (plan.outdated and not gates & HOLDING) or (lacking and snapshot.cluster.status.get("phase") == "Rolling"):
        return "Rolling"
    if lacking:
        return "Degraded"
    if gates & RESIZING or any(isinstance(step, EnlargeClaim | RemakeSet) for step in plan.steps):
        return "Resizing"
    if gates & REFUSED or Gate.AMBIGUOUS_IDENTITY in gates or Gate.NAME_TAKEN in gates:
        return "Blocked"
    return "Running"


def _going(snapshot: Snapshot) -> bool:
    """Whether a broker hands over what it has, to go and not to stay."""
    return any(disk != snapshot.cluster.drain for disk in snapshot.drains)


def _plan(plan: Plan, done: Done, waits: Sequence[Wait]) -> PlanRow | None:
    left = plan.left(done)
    if not left and not waits:
        return None
    first = waits[0] if waits else None
    return PlanRow(
        next=str(left[0]) if left else None,
        blocked_by=str(first.gate) if first else None,
        detail=first.detail if first else None,
    )


def _members(snapshot: Snapshot) -> list[MemberRow] | None:
    """The members, listed by the metadata leader; the brokers' rows are about pods."""
    lost = {member.disk for member in snapshot.lost_disks()} | {one.disk for one in stranded(snapshot).values()}
    rows = [
        MemberRow(
            uuid=member.disk,
            name=member.name,
            state="Lost" if member.disk in lost else _member_state(member),
        )
        for member in sorted(snapshot.members(), key=lambda one: (one.name, one.disk))
    ]
    return rows or None


def _member_state(member: Member) -> Literal["Alive", "Away", "Draining"]:
    if not member.alive:
        return "Away"
    return "Draining" if member.draining else "Alive"


def _config(snapshot: Snapshot, known: Sequence[Broker]) -> ConfigRow | None:
    if snapshot.config is None:
        return None
    version = snapshot.config.version
    return ConfigRow(version=version, applied=sum(broker.config_version >= version for broker in known))


def _level(snapshot: Snapshot) -> LevelRow | None:
    used = snapshot.level()
    return LevelRow(used=used, known_by_all=snapshot.level_reachable() or None) if used else None


def _replication(snapshot: Snapshot) -> ReplicationRow | None:
    told, leading = snapshot.replication(), snapshot.leader()
    if told is None:
        return None
    spare, needed = (leading[1].spare_brokers, leading[1].copies_needed or None) if leading else (None, None)
    return ReplicationRow(factor=told.factor, write_quorum=told.write_quorum, copies_needed=needed, spare_brokers=spare)


def _pools(
    spec: ClusterSpec | None, snapshot: Snapshot, rows: Sequence[BrokerRow], outdated: Sequence[str]
) -> list[PoolRow]:
    desired = {pool.name: pool.replicas for pool in spec.pools} if spec else {}
    now = {pool: int(found["spec"].get("replicas", 0)) for pool, found in snapshot.sets().items()}
    return [
        PoolRow(
            name=name,
            desired=desired.get(name, 0),
            replicas=now.get(name, 0),
            ready=sum(row.pool == name and row.state == "Serving" for row in rows),
            storage=volume_size(name, snapshot),
            updated=sum(pod.pool == name and pod.name not in outdated for pod in snapshot.pods.values()),
        )
        for name in sorted({*desired, *now})[:_POOLS]
    ]
