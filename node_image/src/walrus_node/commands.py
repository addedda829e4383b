"""Commands that this node proposes: times and ids are put in here, `apply` has neither. Outcomes are waited for."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import walrus_core

from walrus_node.metadata.admission import Registration
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.reports import CopyChange, OrganisationLimits, Replication
from walrus_node.metadata.store import Applied, MetadataStore, Rejected, Unknown

log = logging.getLogger(__name__)

ENVELOPE_VERSION = 1
PROPOSE_MAX_S = 5.0
PAUSE_S = 0.1


# A command as JSON has it: its name, and its fields.
Command = Mapping[str, object]


def bootstrap(cluster_id: UUID, replication: Replication) -> Command:
    """Found the cluster."""
    return {"bootstrap": {"cluster_id": str(cluster_id), "replication": asdict(replication)}}


def set_replication(replication: Replication) -> Command:
    """Change how segments that are opened from now on are replicated."""
    return {"set_replication": {"replication": asdict(replication)}}


def set_config(entries: Mapping[str, int], unset: Sequence[str]) -> Command:
    """Change settings of the cluster."""
    return {"set_config": {"set": dict(entries), "unset": list(unset)}}


def set_organisation(name: str, limits: OrganisationLimits) -> Command:
    """Make an organisation, or give one other limits."""
    return {"set_organisation": {"name": name, "limits": asdict(limits)}}


def remove_organisation(name: str) -> Command:
    """Take an organisation out that has no topics."""
    return {"remove_organisation": {"name": name}}


def renew_lease(node_id: int, process: UUID, *, asked_boottime_ms: int, disk_bytes: int) -> Command:
    """Renew a node's lease, which counts from when it was asked for, and tell the size of its disk (0: not told)."""
    lease: dict[str, object] = {"node": node_id, "process": str(process), "asked_boottime_ms": asked_boottime_ms}
    return {"renew_lease": {**lease, "disk_bytes": disk_bytes} if disk_bytes else lease}


def raise_level(level: int) -> Command:
    """Use commands of that level from now on."""
    return {"raise_level": {"level": level}}


def drain_node(node_id: int, disk: UUID, *, draining: bool) -> Command:
    """Begin or end the draining of a node."""
    return {"drain_node": {"node": node_id, "disk": str(disk), "draining": draining}}


def remove_node(node_id: int, disk: UUID, *, lost: bool, replaced_by: str | None) -> Command:
    """Take a disk out of the cluster for good; *lost*: it cannot be asked for anything any more."""
    return {"remove_node": {"node": node_id, "disk": str(disk), "lost": lost, "replaced_by": replaced_by}}


def set_copies(change: CopyChange) -> Command:
    """Change the copies of a sealed segment."""
    return {"set_copies": change.command}


def expire(partitions: Sequence[Mapping[str, object]]) -> Command:
    """Drop what these partitions have to let go by their topics' retention."""
    return {"expire": {"partitions": list(partitions)}}


class RegistrationRefusedError(Exception):
    """The cluster does not take a node; the message says why."""


def envelope(command: Command, *, expect: int | None = None) -> bytes:
    """A command under a fresh id, for an entity of version *expect*. Proposed again, these very bytes act once."""
    head = {"v": ENVELOPE_VERSION, "id": str(_new_id()), "at_ms": now_ms(), "expect": expect}
    return json.dumps({**head, "command": command}, separators=(",", ":")).encode()


def _new_id() -> UUID:
    """No command has had it. It is no secret, and `uuid4` would ask the kernel and give up the interpreter's lock."""
    return UUID(int=random.getrandbits(128), version=4)


async def execute(
    store: MetadataStore[ClusterState], command: Command, *, expect: int | None = None
) -> Applied | Rejected:
    """Propose a command until its outcome is known."""
    return await propose(store, envelope(command, expect=expect))


async def propose(store: MetadataStore[ClusterState], proposal: bytes) -> Applied | Rejected:
    """Propose under one command id until the outcome is known; only cancelling ends it otherwise."""
    while True:
        outcome = await asyncio.wrap_future(store.propose(proposal, timeout=PROPOSE_MAX_S))
        if not isinstance(outcome, Unknown):
            return outcome
        log.debug("outcome unknown (%s), proposed again", outcome.why)
        await asyncio.sleep(PAUSE_S)


async def carry_out(
    store: MetadataStore[ClusterState], look: Callable[[ClusterState], walrus_core.Present], request: str
) -> Any:
    """Plan a request and propose it, anew as long as the state it was planned from has moved on; gives its response.

    Only cancelling ends it otherwise. Raises `walrus_core.Rejected`, `walrus_core.RetryableError`, and `ValueError` for
    a text that is no request.
    """
    while True:
        state = store.read()
        plan = state.metadata.plan(request, look(state))
        proposal = plan.envelope(now_ms())
        outcome = None if proposal is None else await propose(store, proposal)
        response = plan.response(outcome.to_json() if isinstance(outcome, Rejected) else None)
        if response is not None:
            return response
        await asyncio.sleep(PAUSE_S)


async def register(store: MetadataStore[ClusterState], registration: Registration) -> int:
    """Say which process runs on a disk and where; returns the node's id. It has no lease yet.

    Raises `RegistrationRefusedError`.
    """
    facts = {name: str(fact) if isinstance(fact, UUID) else fact for name, fact in asdict(registration).items()}
    if not registration.zone:
        del facts["zone"]  # members of a release from before zones take no command with one
    outcome = await execute(store, {"register_node": facts})
    if isinstance(outcome, Rejected):
        raise RegistrationRefusedError(outcome.message)
    return int(outcome.answer["node"])


def settings_version(applied: Applied) -> int:
    """The version of the settings that `set_config` has made."""
    return int(applied.answer["config"]["version"])


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
