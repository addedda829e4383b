"""How a new disk enters the cluster: one JSON request on the Raft port, one answer.

The node that is asked proposes the registration if it leads, else names the leader. Asking again is harmless: a disk
that was admitted before gets the same id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from walrus_node.metadata.wire import (
    GREETING_BYTES_MAX,
    WIRE_VERSION,
    BadFrameError,
    FrameReader,
    decode_greeting,
    encode_greeting,
)

log = logging.getLogger(__name__)

_ANSWER_SECONDS_MAX = 10.0
_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 3.0
_REDIRECTS_MAX = 5
_ADDRESS_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Registration:
    """What a node says of itself; before its data plane listens, a port that the system chooses is still 0."""

    # The node id that it would like, or has.
    wanted: int | None
    disk: UUID
    process: UUID
    raft_address: str
    peer_address: str
    text_address: str
    grpc_address: str
    http_address: str


@dataclass(frozen=True)
class Admitted:
    """The cluster's answer; `peers` are disks to begin with and their Raft addresses."""

    cluster_id: UUID
    node_id: int
    peers: dict[UUID, str]


def parse_join(greeting: dict[str, Any]) -> Registration:
    """Read a stranger's request; raises `BadFrameError`."""
    fields = greeting.get("registration")
    if greeting.get("join") != WIRE_VERSION or not isinstance(fields, dict):
        raise BadFrameError(f"a join request of version {WIRE_VERSION} was expected")
    wanted = fields.get("wanted")
    addresses = {name: fields.get(name) for name in Registration.__dataclass_fields__ if name.endswith("_address")}
    if not all(isinstance(value, str) and 0 < len(value) <= _ADDRESS_CHARACTERS_MAX for value in addresses.values()):
        raise BadFrameError("a join request lacks an address")
    if wanted is not None and (type(wanted) is not int or not 0 < wanted < 2**31):
        raise BadFrameError("a join request wants no possible node id")
    try:
        disk, process = UUID(fields.get("disk")), UUID(fields.get("process"))
    except (ValueError, TypeError, AttributeError):
        raise BadFrameError("a join request lacks disk or process") from None
    return Registration(disk=disk, process=process, wanted=wanted, **addresses)  # type: ignore[arg-type] # checked above


def encode_admitted(admitted: Admitted) -> dict[str, Any]:
    """The answer as it travels."""
    peers = {str(disk): address for disk, address in admitted.peers.items()}
    return {"cluster_id": str(admitted.cluster_id), "node_id": admitted.node_id, "peers": peers}


async def join(seed: str, registration: Registration, on_waiting: Callable[[str], None]) -> Admitted:
    """Ask until admitted. *on_waiting* hears why it takes longer; only cancelling ends it otherwise."""
    pause = _PAUSE_SECONDS_MIN
    address, redirects = seed, 0
    while True:
        try:
            answer = await asyncio.wait_for(_ask(address, registration), _ANSWER_SECONDS_MAX)
            if "cluster_id" in answer:
                return _parse_admitted(answer)
            leader = answer.get("leader")
            if isinstance(leader, str) and redirects < _REDIRECTS_MAX:
                address, redirects = leader, redirects + 1
                continue
            why = f"{address} answers: {answer.get('refused', 'nothing we understand')}"
        except (OSError, TimeoutError, asyncio.IncompleteReadError, BadFrameError, ValueError) as error:
            why = f"{address} does not answer: {error or type(error).__name__}"
        on_waiting(why)
        log.debug("join: %s", why)
        address, redirects = seed, 0
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, guards nothing
        pause = min(_PAUSE_SECONDS_MAX, 2 * pause)


async def _ask(address: str, registration: Registration) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        fields = {
            name: str(value) if isinstance(value, UUID) else value for name, value in asdict(registration).items()
        }
        writer.write(encode_greeting({"join": WIRE_VERSION, "registration": fields}))
        await writer.drain()
        frames = FrameReader(GREETING_BYTES_MAX)
        while data := await reader.read(GREETING_BYTES_MAX):
            for payload in frames.feed(data):
                return decode_greeting(payload)
        raise ConnectionError("connection closed without an answer")
    finally:
        writer.close()


def _parse_admitted(answer: dict[str, Any]) -> Admitted:
    try:
        peers = {UUID(disk): str(address) for disk, address in answer["peers"].items()}
        return Admitted(UUID(answer["cluster_id"]), int(answer["node_id"]), peers)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise BadFrameError("an admission that we do not understand") from None
