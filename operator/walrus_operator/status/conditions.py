"""The conditions: questions about a cluster, each answered with a reason of a closed list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from walrus_operator.api.cluster import AutoGrow
from walrus_operator.api.status import BrokerRow, Condition
from walrus_operator.desired.names import DRAIN
from walrus_operator.observe.snapshot import Broker, Member, Replication, Snapshot
from walrus_operator.plan.actions import REFUSED, Action, Gate, Wait

DISK_PERCENT_MAX = 90
STEP = 5
"""Percent in which rows tell how full disks are."""


class Type(StrEnum):
    """The questions."""

    READY = "Ready"
    """Is the cluster as the spec says, and do all brokers serve?"""
    AVAILABLE = "Available"
    """Is there a metadata leader, and a broker that serves clients?"""
    PROGRESSING = "Progressing"
    """Is something being done or waited for?"""
    STORAGE_HEALTHY = "StorageHealthy"
    """Are all claims bound, and all disks below the mark?"""
    REPLICATED = "Replicated"
    """Does every segment have as many copies on brokers that are alive as the spec asks for?"""
    SURVIVES_ZONE_LOSS = "SurvivesZoneLoss"
    """Would the metadata and every segment outlast the loss of any one zone?"""
    BACKEND_AS_REQUESTED = "BackendAsRequested"
    """Does every broker use the backend that its pool asks for?"""
    SPEC_ACCEPTED = "SpecAccepted"
    """Is everything in the spec done or doable?"""
    QUIESCED = "Quiesced"
    """Did the last pass write nothing, and does it want nothing?"""


class Reason(StrEnum):
    """The reasons, besides the names of gates."""

    ALL_SERVING = "AllServing"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    BLOCKED = "Blocked"
    HIBERNATED = "Hibernated"
    SERVING = "Serving"
    NO_LEADER = "NoLeader"
    NO_ENDPOINTS = "NoEndpoints"
    UNKNOWN = "Unknown"
    ACTING = "Acting"
    WAITING = "Waiting"
    CONVERGED = "Converged"
    HEALTHY = "Healthy"
    DISK_PRESSURE = "DiskPressure"
    AUTO_GROW_EXHAUSTED = "AutoGrowExhausted"
    CLAIM_PENDING = "ClaimPending"
    LOST_DISK = "LostDisk"
    LOST_NODE = "LostNode"
    LOST_CLUSTER = "LostCluster"
    WHOLE = "Whole"
    UNDER_REPLICATED = "UnderReplicated"
    SPREAD = "Spread"
    NO_ZONES = "NoZones"
    ONE_ZONE = "OneZone"
    VOTERS_IN_ONE_ZONE = "VotersInOneZone"
    SEGMENTS_IN_ONE_ZONE = "SegmentsInOneZone"
    AS_REQUESTED = "AsRequested"
    FELL_BACK = "FellBack"
    ACCEPTED = "Accepted"
    QUIET = "Quiet"
    WORKING = "Working"


_HIDDEN = "the operator may not look at the brokers, see plan: what is told of them is what it saw last"

_MOVING = frozenset(
    {
        Gate.POD_PENDING,
        Gate.NOT_FOUNDED,
        Gate.UNKNOWN_BROKER,
        Gate.NOT_CAUGHT_UP,
        Gate.QUORUM_TIGHT,
        Gate.EVICTION_REFUSED,
        Gate.ADDRESS_PENDING,
        Gate.DRAINING,
        Gate.NODE_LOST,
        Gate.RESIZING,
    }
)
"""Gates that open by themselves when all goes well."""


HOLDING = frozenset({Gate.MAINTENANCE_WINDOW, Gate.DISK_PRESSURE})
"""Gates that keep a roll or a drain from beginning."""

RESIZING = frozenset({Gate.RESIZING, Gate.RESIZE_FAILED})
"""Gates of claims that have begun to grow."""


@dataclass(frozen=True)
class Answer:
    """One question, answered."""

    type: StrEnum
    status: bool | None
    """None: unknown."""
    reason: str
    message: str


@dataclass(frozen=True)
class Facts:
    """What the answers are taken from."""

    snapshot: Snapshot
    rows: Sequence[BrokerRow]
    desired: int
    """Brokers that the spec in force asks for."""
    replication: Replication | None
    """What the spec in force asks for; None where there is none."""
    leader: str | None
    outdated: Sequence[str]
    """Pods that are made from something else than the spec says now."""
    done: Sequence[Action]
    waits: Sequence[Wait]
    exhausted: Mapping[str, AutoGrow] = field(default_factory=dict)
    """Pools whose claims grow by themselves and are as large as they may be."""
    hibernates: bool = False
    """Whether the spec in force wants no broker to run."""


def answers(facts: Facts) -> list[Answer]:
    """All questions, answered."""
    return [
        _ready(facts),
        _available(facts),
        _progressing(facts),
        _storage_healthy(facts),
        _replicated(facts),
        _survives_zone_loss(facts),
        _backend_as_requested(facts),
        _spec_accepted(facts),
        _quiesced(facts),
    ]


def conditions(
    answered: Sequence[Answer], before: Mapping[str, Any], generation: int, now: datetime
) -> list[Condition]:
    """The answers as conditions; the time of an answer that did not change stays."""
    former = {condition["type"]: condition for condition in before.get("conditions", ())}
    made = []
    for answer in answered:
        status = "Unknown" if answer.status is None else str(answer.status)
        old = former.get(answer.type)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else _text(now)
        made.append(
            Condition.model_validate(
                {
                    "type": str(answer.type),
                    "status": status,
                    "reason": answer.reason,
                    "message": answer.message,
                    "observedGeneration": generation,
                    "lastTransitionTime": since,
                }
            )
        )
    return made


def is_false(status: Mapping[str, Any], kind: Type) -> bool:
    """Whether a status says that this is not so; what nobody knows is not false."""
    return any(one["type"] == kind and one["status"] == "False" for one in status.get("conditions", ()))


def _text(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _refusals(facts: Facts) -> list[Wait]:
    return [wait for wait in facts.waits if wait.gate in REFUSED]


def _others(facts: Facts) -> list[Wait]:
    return [wait for wait in facts.waits if wait.gate not in REFUSED]


def _ready(facts: Facts) -> Answer:
    if facts.snapshot.hides_brokers():
        return Answer(Type.READY, None, Reason.UNKNOWN, _HIDDEN)
    lacking = [row for row in facts.rows if row.state != "Serving"]
    serving = len(facts.rows) - len(lacking)
    count = f"{serving} of {len(facts.rows)} brokers serve"
    if _refusals(facts):
        return Answer(
            Type.READY, False, Reason.BLOCKED, f"{count}; the spec asks for what is refused, see SpecAccepted"
        )
    if facts.snapshot.lost_disks():
        return Answer(Type.READY, False, Reason.DEGRADED, f"{count}; a disk is lost, see StorageHealthy")
    if any(wait.gate is Gate.PAUSED for wait in facts.waits):
        return Answer(Type.READY, False, Gate.PAUSED, f"{count}; the operator only looks")
    if facts.hibernates:
        return Answer(Type.READY, False, Reason.HIBERNATED, _hibernating(facts))
    if lacking or not facts.rows:
        founded = bool(facts.snapshot.cluster_ids())
        names = ", ".join(f"{row.pod} {row.state}" for row in lacking)
        return Answer(
            Type.READY, False, Reason.DEGRADED if founded else Reason.PROGRESSING, f"{count}{names and ': '}{names}"
        )
    if len(facts.rows) < facts.desired:
        return Answer(Type.READY, False, Reason.PROGRESSING, f"{count}; {facts.desired} are asked for")
    if len(facts.rows) > facts.desired:
        return _leaving(facts, count)
    if facts.outdated:
        following = f"{len(facts.outdated)} of them restart to follow the spec: {', '.join(facts.outdated)}"
        for wait in facts.waits:
            if wait.gate in HOLDING:
                return Answer(Type.READY, False, Reason.BLOCKED, f"{count}; {following}: {wait.gate}, see plan")
        return Answer(Type.READY, False, Reason.PROGRESSING, f"{count}; {following}")
    for wait in facts.waits:
        if wait.gate is Gate.DRAINING:
            return Answer(Type.READY, False, Reason.PROGRESSING, f"{count}; {wait.detail}")
    if facts.waits and all(wait.gate is Gate.RESIZING for wait in facts.waits):
        return Answer(Type.READY, False, Reason.PROGRESSING, f"{count}; claims grow, see plan")
    if facts.waits:
        return Answer(Type.READY, False, Reason.BLOCKED, f"{count}; something is held up, see plan")
    return Answer(Type.READY, True, Reason.ALL_SERVING, f"{count}{_drained(facts.snapshot)}")


def _drained(snapshot: Snapshot) -> str:
    """Which broker stores nothing because someone said so."""
    for pod, departure in snapshot.departures().items():
        drain = snapshot.drains.get(departure.disk)
        if departure.disk == snapshot.cluster.drain and drain is not None and drain.done:
            return f"; {pod} has handed over what it had, as {DRAIN} says, and stores nothing until that is taken away"
    return ""


def _leaving(facts: Facts, count: str) -> Answer:
    going = f"{count}; {facts.desired} are asked for, and the others go one at a time"
    for wait in facts.waits:
        if wait.gate in HOLDING:
            return Answer(Type.READY, False, Reason.BLOCKED, f"{going}: {wait.gate}, see plan")
    return Answer(Type.READY, False, Reason.PROGRESSING, going)


def _hibernating(facts: Facts) -> str:
    left = sorted(facts.snapshot.pods)
    stopped = f"brokers stop: {', '.join(left)}" if left else "all brokers are stopped"
    return f"{stopped}, as hibernate says; set it to false, and all come back together"


def _available(facts: Facts) -> Answer:
    if facts.snapshot.hides_brokers():
        return Answer(Type.AVAILABLE, None, Reason.UNKNOWN, _HIDDEN)
    if facts.hibernates:
        return Answer(Type.AVAILABLE, False, Reason.HIBERNATED, _hibernating(facts))
    if facts.snapshot.lost_cluster():
        return Answer(Type.AVAILABLE, False, Reason.LOST_CLUSTER, _lost_cluster(facts))
    if not facts.snapshot.cluster_ids():
        return Answer(Type.AVAILABLE, False, Gate.NOT_FOUNDED, "no broker is in a cluster yet")
    if any(row.state == "Serving" for row in facts.rows):
        if facts.leader is None:
            return Answer(Type.AVAILABLE, False, Reason.NO_LEADER, "no broker leads the metadata")
        return Answer(Type.AVAILABLE, True, Reason.SERVING, "a broker leads the metadata, and clients are served")
    if any(row.state == "Unreachable" for row in facts.rows):
        return Answer(Type.AVAILABLE, None, Reason.UNKNOWN, "no broker answers the operator")
    return Answer(Type.AVAILABLE, False, Reason.NO_ENDPOINTS, "no broker serves clients")


def _progressing(facts: Facts) -> Answer:
    if facts.done:
        return Answer(Type.PROGRESSING, True, Reason.ACTING, "; ".join(map(str, facts.done))[:900])
    for wait in _others(facts):
        if wait.gate in _MOVING:
            return Answer(Type.PROGRESSING, True, Reason.WAITING, f"{wait.gate}: {wait.detail}")
    if facts.hibernates and facts.snapshot.pods:
        return Answer(Type.PROGRESSING, True, Reason.WAITING, _hibernating(facts))
    if facts.waits:
        wait = facts.waits[0]
        return Answer(Type.PROGRESSING, False, Reason.BLOCKED, f"{wait.gate}: {wait.detail}")
    return Answer(Type.PROGRESSING, False, Reason.CONVERGED, "everything is as it shall be")


def _storage_healthy(facts: Facts) -> Answer:
    if facts.snapshot.lost_cluster():
        return Answer(Type.STORAGE_HEALTHY, False, Reason.LOST_CLUSTER, _lost_cluster(facts))
    gone = facts.snapshot.lost_disks()
    if gone:
        ways = "; ".join(
            f"{member.name} came up on a new disk, and {member.disk} still votes and counts as a copy: bring that disk"
            f" back, or {_give_up(facts, member, by)}"
            for member, by in sorted(gone.items(), key=lambda item: item[0].name)
        )
        return Answer(Type.STORAGE_HEALTHY, False, Reason.LOST_DISK, ways[:1800])
    stranded = [wait.detail for wait in facts.waits if wait.gate is Gate.NODE_LOST]
    if stranded:
        return Answer(Type.STORAGE_HEALTHY, False, Reason.LOST_NODE, "; ".join(stranded)[:1800])
    removed = [wait.detail for wait in facts.waits if wait.gate is Gate.REMOVED_DISK and wait.about]
    if removed:
        return Answer(Type.STORAGE_HEALTHY, False, Gate.REMOVED_DISK, "; ".join(removed)[:1800])
    claims = facts.snapshot.claims
    lost = sorted(name for name, claim in claims.items() if claim.phase == "Lost")
    if lost:
        return Answer(Type.STORAGE_HEALTHY, False, Reason.LOST_DISK, f"lost volumes of claims: {', '.join(lost)}")
    spent = _spent(facts)
    if spent:
        return Answer(Type.STORAGE_HEALTHY, False, Reason.AUTO_GROW_EXHAUSTED, spent)
    full = [row for row in facts.rows if (row.disk_percent or 0) >= DISK_PERCENT_MAX]
    if full:
        names = ", ".join(f"{row.pod} {row.disk_percent} %" for row in full)
        return Answer(Type.STORAGE_HEALTHY, False, Reason.DISK_PRESSURE, f"disks are nearly full: {names}")
    for wait in facts.waits:
        if wait.gate in RESIZING:
            return Answer(Type.STORAGE_HEALTHY, False, wait.gate, wait.detail)
    unbound = sorted(name for name, claim in claims.items() if claim.phase != "Bound")
    if unbound:
        return Answer(
            Type.STORAGE_HEALTHY, False, Reason.CLAIM_PENDING, f"claims without a volume: {', '.join(unbound)}"
        )
    if not any(row.disk_percent is not None for row in facts.rows):
        return Answer(Type.STORAGE_HEALTHY, None, Reason.UNKNOWN, "no broker answers the operator")
    return Answer(Type.STORAGE_HEALTHY, True, Reason.HEALTHY, f"every disk that answers is below {DISK_PERCENT_MAX} %")


def _spent(facts: Facts) -> str:
    """Which disks fill up although their claims may not grow any more. Rows tell in steps, so the mark is one, too."""
    told = []
    for pool, auto in facts.exhausted.items():
        mark = auto.at - auto.at % STEP
        rows = [row for row in facts.rows if row.pool == pool and (row.disk_percent or 0) >= mark]
        if rows:
            full = ", ".join(f"{row.pod} {row.disk_percent} %" for row in rows)
            told.append(f"the claims of pool {pool} have autoGrow.max ({auto.max}), and disks fill up: {full}")
    return "; ".join([*told, "raise it, let records go (retention), or add brokers"]) if told else ""


def _give_up(facts: Facts, member: Member, by: Broker) -> str:
    if facts.leader is None:
        return "others, until a majority leads the metadata: before, none can be given up"
    return f"give it up with: walrus cluster replace {member.disk} --by {by.disk}"


def _lost_cluster(facts: Facts) -> str:
    return (
        f"no broker has a disk of cluster {facts.snapshot.kept_id()}: all are new. Nothing is founded"
        " anew over it: bring the volumes back, or delete this WalrusCluster and make it again, empty"
    )


def _replicated(facts: Facts) -> Answer:
    """Whether all is replicated, told by the metadata leader; it alone is never behind."""
    leading, told = facts.snapshot.leader(), facts.snapshot.replication()
    if leading is None or told is None:
        return Answer(Type.REPLICATED, None, Reason.UNKNOWN, "no broker leads the metadata")
    if facts.replication not in (None, told):
        message = f"{told} is in force; {facts.replication} waits for its brokers"
        return Answer(Type.REPLICATED, False, Reason.PROGRESSING, message)
    lacking = leading[1].under_replicated
    if lacking:
        message = f"{lacking} segments have fewer than {told.factor} copies on brokers that are alive"
        return Answer(Type.REPLICATED, False, Reason.UNDER_REPLICATED, message)
    return Answer(Type.REPLICATED, True, Reason.WHOLE, f"every segment has {told.factor} copies")


def _survives_zone_loss(facts: Facts) -> Answer:
    """Whether any zone may be lost, told by the metadata leader. Brokers that tell no zone are in one together."""
    leading = facts.snapshot.leader()
    if leading is None:
        return Answer(Type.SURVIVES_ZONE_LOSS, None, Reason.UNKNOWN, "no broker leads the metadata")
    members = leading[1].members
    zones = {member.zone for member in members}
    if zones <= {""}:
        message = "brokers know no zone: nodes have none, Kubernetes is older than 1.35, or topology.spread is host"
        return Answer(Type.SURVIVES_ZONE_LOSS, None, Reason.NO_ZONES, message)
    if len(zones) == 1:
        message = f"all brokers are in zone {zones.pop()}: let some run in others"
        return Answer(Type.SURVIVES_ZONE_LOSS, False, Reason.ONE_ZONE, message)
    voters = Counter(member.zone for member in members if member.voter)
    for zone, number in voters.most_common(1):
        if 2 * number >= voters.total():
            where = f"zone {zone}" if zone else "no zone that they know"
            message = f"{number} of {voters.total()} brokers that vote on the metadata are in {where}"
            return Answer(Type.SURVIVES_ZONE_LOSS, False, Reason.VOTERS_IN_ONE_ZONE, message)
    bound = leading[1].in_one_zone
    if bound:
        message = f"{bound} segments need one zone: without it they had no quorum, or no copy"
        return Answer(Type.SURVIVES_ZONE_LOSS, False, Reason.SEGMENTS_IN_ONE_ZONE, message)
    return Answer(Type.SURVIVES_ZONE_LOSS, True, Reason.SPREAD, "any one zone may be lost, and writes and reads go on")


def _backend_as_requested(facts: Facts) -> Answer:
    fallen = [row for row in facts.rows if row.backend_reason]
    if fallen:
        names = "; ".join(f"{row.pod} uses {row.backend}: {row.backend_reason}" for row in fallen)
        return Answer(Type.BACKEND_AS_REQUESTED, False, Reason.FELL_BACK, names[:900])
    if not any(row.backend for row in facts.rows):
        return Answer(Type.BACKEND_AS_REQUESTED, None, Reason.UNKNOWN, "no broker answers the operator")
    message = "brokers use the backends of their pools"
    cached = [row for row in facts.rows if row.synced_writes == "cached"]
    if cached:
        names = "; ".join(f"{row.pod}: {row.cached_reason}" for row in cached)
        message += f"; synced writes go through the page cache of {names}"
    return Answer(Type.BACKEND_AS_REQUESTED, True, Reason.AS_REQUESTED, message[:900])


def _spec_accepted(facts: Facts) -> Answer:
    refused = _refusals(facts)
    if refused:
        return Answer(Type.SPEC_ACCEPTED, False, refused[0].gate, "; ".join(wait.detail for wait in refused)[:1800])
    return Answer(Type.SPEC_ACCEPTED, True, Reason.ACCEPTED, "everything in the spec is done or being done")


def _quiesced(facts: Facts) -> Answer:
    if facts.done:
        return Answer(Type.QUIESCED, False, Reason.WORKING, "the last pass changed something")
    if facts.waits:
        return Answer(Type.QUIESCED, False, facts.waits[0].gate, "something is held up, see plan")
    return Answer(Type.QUIESCED, True, Reason.QUIET, "the last pass changed nothing and wants nothing")
