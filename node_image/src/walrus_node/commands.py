"""Commands that this node proposes: times and ids are put in here, `apply` has neither. Outcomes are waited for."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from dataclasses import asdict
from typing import Any
from uuid import UUID

from walrus_node.metadata.admission import Registration
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import Applied, MetadataStore, Rejected, Unknown

log = logging.getLogger(__name__)

ENVELOPE_VERSION = 1
PROPOSE_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.1


class RegistrationRefusedError(Exception):
    """The cluster does not take a node; the message says why."""


def envelope(command: dict[str, Any], *, expect: int | None = None) -> bytes:
    """A command under a fresh id, for an entity of version *expect*. Proposed again, these very bytes act once."""
    head = {"v": ENVELOPE_VERSION, "id": str(_new_id()), "at_ms": now_ms(), "expect": expect}
    return json.dumps({**head, "command": command}, separators=(",", ":")).encode()


def _new_id() -> UUID:
    """No command has had it. It is no secret, and `uuid4` would ask the kernel and give up the interpreter's lock."""
    return UUID(int=random.getrandbits(128), version=4)


async def execute(
    store: MetadataStore[ClusterState], command: dict[str, Any], *, expect: int | None = None
) -> Applied | Rejected:
    """Propose a command until its outcome is known."""
    return await propose(store, envelope(command, expect=expect))


async def propose(store: MetadataStore[ClusterState], proposal: bytes) -> Applied | Rejected:
    """Propose under one command id until the outcome is known; only cancelling ends it otherwise."""
    while True:
        outcome = await asyncio.wrap_future(store.propose(proposal, timeout=PROPOSE_SECONDS_MAX))
        if not isinstance(outcome, Unknown):
            return outcome
        log.debug("outcome unknown (%s), proposed again", outcome.why)
        await asyncio.sleep(PAUSE_SECONDS)


async def register(store: MetadataStore[ClusterState], registration: Registration) -> int:
    """Say which process runs on a disk and where; returns the node's id. It has no lease yet.

    Raises `RegistrationRefusedError`.
    """
    facts = {name: str(fact) if isinstance(fact, UUID) else fact for name, fact in asdict(registration).items()}
    outcome = await execute(store, {"register_node": facts})
    if isinstance(outcome, Rejected):
        raise RegistrationRefusedError(outcome.message)
    return int(outcome.answer["node"])


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
