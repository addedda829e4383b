"""The stages through which a node starts. Each is built once all that it needs is there, and holds the one before.

They are, in order: `Ground` (the data directory and the Raft port), `Fronted` (HTTP and the admin service are open),
`Opened` (the metadata are open, and may know no leader yet), `Member` (the node is in its cluster and knows its id),
`Serving` (the data plane is open) and `OnDuty` (the controller renews the lease and answers the data plane).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import walrus_core

from walrus_node.address import Address
from walrus_node.controller import Controller
from walrus_node.entrance import Entered
from walrus_node.ground import Ground
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.raft_store import RaftStore


@dataclass(frozen=True)
class Fronted:
    """HTTP and the admin service answer at their ports."""

    before: Ground
    # Where each listener is, or will be.
    bound: Mapping[str, Address]


@dataclass(frozen=True)
class Opened:
    """The metadata are open; before the node is admitted they are empty."""

    before: Fronted
    store: RaftStore[ClusterState]


@dataclass(frozen=True)
class Member:
    """The node is in its cluster."""

    before: Opened
    entered: Entered


@dataclass(frozen=True)
class Serving:
    """The data plane is open, at the addresses that are bound."""

    before: Member
    data_plane: walrus_core.DataPlane
    bound: Mapping[str, Address]


@dataclass(frozen=True)
class OnDuty:
    """The controller does the node's duties towards the metadata."""

    before: Serving
    controller: Controller


Stage = Ground | Fronted | Opened | Member | Serving | OnDuty
StageT = TypeVar("StageT", Ground, Fronted, Opened, Member, Serving, OnDuty)


def reached(stage: Stage, kind: type[StageT]) -> StageT | None:
    """That stage of a node that has come as far as *stage*; `None` where it has not come so far."""
    while not isinstance(stage, kind):
        if isinstance(stage, Ground):
            return None
        stage = stage.before
    return stage
