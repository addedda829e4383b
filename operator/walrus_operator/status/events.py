"""What is worth an Event: steps that were taken, and changes that people want to know of. Reasons are a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from walrus_operator.api.units import amount_of
from walrus_operator.objects import BUDGET, Key, Kind
from walrus_operator.plan.actions import (
    Advertise,
    Apply,
    CancelDrain,
    Dismiss,
    Done,
    EnlargeClaim,
    FinalizeLevel,
    Gate,
    GiveUpDisk,
    Grow,
    HoldDeletion,
    MakeSecret,
    Place,
    Prune,
    RemakeSet,
    RemoveClaim,
    RemoveMember,
    RestartPod,
    RollPod,
    SetConfig,
    SetLogLevel,
    SetReplication,
    Shrink,
    StartDrain,
    TransferLeadership,
)
from walrus_operator.status import conditions
from walrus_operator.status.conditions import Type
from walrus_operator.status.writing import without_counts


class Reason(StrEnum):
    """The reasons of Events."""

    CREATED = "Created"
    UPDATED = "Updated"
    REMOVED = "Removed"
    GROWING = "Growing"
    DRAINING = "Draining"
    DRAINED = "Drained"
    DRAIN_CANCELLED = "DrainCancelled"
    MEMBER_REMOVED = "MemberRemoved"
    DISK_GIVEN_UP = "DiskGivenUp"
    SHRUNK = "Shrunk"
    CLAIM_GROWING = "ClaimGrowing"
    CLAIM_GROWN = "ClaimGrown"
    SET_REMADE = "SetRemade"
    CONFIG_CHANGED = "ConfigChanged"
    LEVEL_FINALIZED = "LevelFinalized"
    ADVERTISED = "Advertised"
    PLACED = "Placed"
    RESTARTED = "Restarted"
    LEADERSHIP_MOVED = "LeadershipMoved"
    FOUNDED = "Founded"
    BROKER_SERVING = "BrokerServing"
    BROKER_LOST = "BrokerLost"
    HIBERNATED = "Hibernated"
    WOKEN = "Woken"
    SPEC_REFUSED = "SpecRefused"
    BACKEND_FELL_BACK = "BackendFellBack"
    STORAGE_UNHEALTHY = "StorageUnhealthy"


_WARNINGS = frozenset({Reason.BROKER_LOST, Reason.SPEC_REFUSED, Reason.BACKEND_FELL_BACK, Reason.STORAGE_UNHEALTHY})
_TROUBLES = {
    Type.SPEC_ACCEPTED: Reason.SPEC_REFUSED,
    Type.BACKEND_AS_REQUESTED: Reason.BACKEND_FELL_BACK,
    Type.STORAGE_HEALTHY: Reason.STORAGE_UNHEALTHY,
}

_ORDINARY = frozenset({str(conditions.Reason.CLAIM_PENDING), str(Gate.RESIZING)})
"""What every new cluster goes through, and every claim that grows."""


class About(Protocol):
    """What an Event is about: a resource of ours."""

    @property
    def kind(self) -> Kind: ...
    @property
    def key(self) -> Key: ...
    @property
    def uid(self) -> str: ...


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    reason: Reason
    message: str

    @property
    def warning(self) -> bool:
        """Whether someone may have to do something."""
        return self.reason in _WARNINGS


def events(before: Mapping[str, Any], after: Mapping[str, Any], done: Done) -> list[Event]:
    """What happened between two states."""
    return [*_steps(done), *_changes(before, after)]


def _steps(done: Done) -> list[Event]:
    made = []
    for action in done.actions:
        match action:
            case Apply(new=True) | MakeSecret():
                made.append(Event(Reason.CREATED, str(action)))
            case Apply() if action.manifest["kind"] == BUDGET.name:
                continue  # it follows the quorum to and fro
            case HoldDeletion():
                continue  # it follows the spec
            case Apply():
                made.append(Event(Reason.UPDATED, str(action)))
            case Prune() | RemoveClaim() | Dismiss():
                made.append(Event(Reason.REMOVED, str(action)))
            case Grow():
                made.append(Event(Reason.GROWING, str(action)))
            case StartDrain():
                made.append(Event(Reason.DRAINING, str(action)))
            case CancelDrain():
                made.append(Event(Reason.DRAIN_CANCELLED, str(action)))
            case GiveUpDisk():
                made.append(Event(Reason.DISK_GIVEN_UP, str(action)))
            case RemoveMember():
                made.append(Event(Reason.MEMBER_REMOVED, str(action)))
            case Shrink():
                made.append(Event(Reason.SHRUNK, str(action)))
            case EnlargeClaim():
                made.append(Event(Reason.CLAIM_GROWING, str(action)))
            case RemakeSet():
                made.append(Event(Reason.SET_REMADE, str(action)))
            case SetConfig() | SetReplication() | SetLogLevel():
                made.append(Event(Reason.CONFIG_CHANGED, str(action)))
            case FinalizeLevel():
                made.append(Event(Reason.LEVEL_FINALIZED, str(action)))
            case Advertise():
                made.append(Event(Reason.ADVERTISED, str(action)))
            case Place():
                made.append(Event(Reason.PLACED, str(action)))
            case TransferLeadership():
                made.append(Event(Reason.LEADERSHIP_MOVED, str(action)))
            case RestartPod() | RollPod():
                made.append(Event(Reason.RESTARTED, str(action)))
    return made


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Event]:
    made = []
    if after.get("clusterId") and not before.get("clusterId"):
        made.append(Event(Reason.FOUNDED, f"cluster {after['clusterId']} is founded"))
    slept, sleeps = _hibernates(before), _hibernates(after)
    if sleeps and not slept:
        made.append(Event(Reason.HIBERNATED, "all brokers are stopped, and come back together"))
    if slept and not sleeps:
        made.append(Event(Reason.WOKEN, "the brokers that were stopped come back together"))
    was = {row["pod"]: row for row in before.get("brokers", ())}
    for row in after.get("brokers", ()):
        old = was.get(row["pod"], {}).get("state")
        if row["state"] == "Serving" and old != "Serving":
            made.append(Event(Reason.BROKER_SERVING, f"{row['pod']} serves"))
        elif row["state"] != "Serving" and old == "Serving" and not sleeps:
            made.append(Event(Reason.BROKER_LOST, f"{row['pod']} does not serve any more: {row['state']}"))
        if row.get("drainPercent") == 100 and was.get(row["pod"], {}).get("drainPercent") != 100:
            made.append(Event(Reason.DRAINED, f"{row['pod']} has handed over what it had"))
        made += _grown(was.get(row["pod"], {}), row)
    former = {condition["type"]: condition for condition in before.get("conditions", ())}
    for condition in after.get("conditions", ()):
        reason = _TROUBLES.get(condition["type"])
        if reason is None or condition["status"] != "False" or condition["reason"] in _ORDINARY:
            continue
        old = former.get(condition["type"], {})
        said = without_counts(old.get("message", ""))
        if (old.get("status"), said) != ("False", without_counts(condition["message"])):
            made.append(Event(reason, condition["message"]))
    return made


def _grown(before: Mapping[str, Any], row: Mapping[str, Any]) -> list[Event]:
    had, has = before.get("claimSize"), row.get("claimSize")
    if had is None or has is None or (amount_of(has) or 0) <= (amount_of(had) or 0):
        return []
    return [Event(Reason.CLAIM_GROWN, f"the claim of {row['pod']} has {has} now, and had {had}")]


def _hibernates(status: Mapping[str, Any]) -> bool:
    return any(one["reason"] == conditions.Reason.HIBERNATED for one in status.get("conditions", ()))
