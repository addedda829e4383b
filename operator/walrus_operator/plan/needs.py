"""What an action cannot do without: who is refused one object goes on with everything that does not need it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set

from walrus_operator.desired.names import Names
from walrus_operator.objects import CLAIM, CONFIG_MAP, POD, SECRET, SERVICE, SERVICE_ACCOUNT, STATEFUL_SET, Ref, ref_of
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import (
    Action,
    Advertise,
    Apply,
    CancelDrain,
    Dismiss,
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
    Wait,
)

_DECISIVE = frozenset({STATEFUL_SET.name, CONFIG_MAP.name, POD.name, CLAIM.name})
"""Kinds that say what a cluster is. While one of them may not be read, nothing is built upon the others."""


def is_blind(snapshot: Snapshot) -> bool:
    """Whether too little of the cluster can be seen to do more than to guard what is there."""
    return not _DECISIVE.isdisjoint(snapshot.unseen)


def forbidden(snapshot: Snapshot) -> dict[str, Wait]:
    """What may not be read, by kind."""
    return {
        kind: Wait(
            Gate.FORBIDDEN, f"what needs to see each {kind} waits until the operator may read them again: {told}"
        )
        for kind, told in sorted(snapshot.unseen.items())
    }


def touched(action: Action, names: Names) -> Ref | None:
    """The object that the action makes or changes, or that makes its pod anew; None: only the brokers."""
    match action:
        case Apply() | Grow() | Dismiss() | Shrink():
            return ref_of(action.manifest)
        case MakeSecret():
            return Ref(SECRET.name, names.namespace, names.secret)
        case Prune() | RemoveClaim() | EnlargeClaim() | RemakeSet():
            return action.ref
        case Advertise() | Place():
            return Ref(POD.name, names.namespace, action.pod)
        case RestartPod() | RollPod() | TransferLeadership():
            return Ref(STATEFUL_SET.name, names.namespace, action.pod.rpartition("-")[0])
        case StartDrain() | CancelDrain() | RemoveMember() | GiveUpDisk():
            return Ref(STATEFUL_SET.name, names.namespace, action.pod.rpartition("-")[0])
        case _:
            return None


def held_up(action: Action, refused: Set[Ref], names: Names) -> bool:
    """Whether the action needs one of the objects that could not be made or changed. A budget needs nothing.

    What a spec changes on brokers waits until it is kept as the accepted one: otherwise the next one that is refused
    would take it back. A deletion is held as long as a claim cannot be removed.
    """
    accepted = Ref(CONFIG_MAP.name, names.namespace, names.accepted)
    match action:
        case SetConfig() | SetReplication() | SetLogLevel() | FinalizeLevel() | EnlargeClaim():
            return accepted in refused
        case HoldDeletion(held=False):
            return any(ref.kind == CLAIM.name for ref in refused)
    ref = touched(action, names)
    if ref in refused:
        return True
    needed = {accepted, *_read_by_brokers(names)}
    return ref is not None and ref.kind == STATEFUL_SET.name and not refused.isdisjoint(needed)


def possible(actions: Iterable[Action], refused: Set[Ref], names: Names) -> tuple[Action, ...]:
    """The actions that can be done without these objects."""
    left = []
    refused = set(refused)
    for action in actions:
        if not held_up(action, refused, names):
            left.append(action)
        elif (ref := touched(action, names)) is not None:
            refused.add(ref)
    return tuple(left)


def _read_by_brokers(names: Names) -> frozenset[Ref]:
    """Without these a broker does not start, or starts as another one."""
    return frozenset(
        {
            Ref(SERVICE_ACCOUNT.name, names.namespace, names.account),
            Ref(CONFIG_MAP.name, names.namespace, names.config),
            Ref(CONFIG_MAP.name, names.namespace, names.bootstrap),
            Ref(SERVICE.name, names.namespace, names.brokers),
            Ref(SECRET.name, names.namespace, names.secret),
        }
    )
