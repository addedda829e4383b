"""How a new disk enters the cluster: one JSON request on the Raft port, one answer.

The node that is asked proposes the registration if it leads, else names the leader. Asking again, or many at once, is
harmless: a disk that was admitted before gets the same id. Who waits to be admitted itself says so.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from walrus_node.metadata.wire import (
    GREETING_BYTES_MAX,
    WIRE,
    BadFrameError,
    FrameReader,
    Versions,
    decode_greeting,
    encode_greeting,
)

log = logging.getLogger(__name__)

_ANSWER_SECONDS_MAX = 10.0
_CONNECT_SECONDS_MAX = 2.0
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
    admin_address: str
    # What its operator calls it.
    name: str
    # Up to which level it knows commands of the metadata.
    level: int


@dataclass(frozen=True)
class Admitted:
    """The cluster's answer; `peers` are disks to begin with and their Raft addresses."""

    cluster_id: UUID
    node_id: int
    peers: dict[UUID, str]


def parse_join(greeting: dict[str, Any]) -> Registration:
    """Read a stranger's request; raises `BadFrameError`."""
    fields = greeting.get("registration")
    theirs = Versions.parse(greeting, "join")
    if WIRE.settle(theirs) is None:
        raise BadFrameError(WIRE.refusal(theirs))
    if not isinstance(fields, dict):
        raise BadFrameError("a join request lacks its registration")
    wanted = fields.get("wanted")
    addresses = {name: fields.get(name) for name in Registration.__dataclass_fields__ if name.endswith("_address")}
    if not all(isinstance(value, str) and 0 < len(value) <= _ADDRESS_CHARACTERS_MAX for value in addresses.values()):
        raise BadFrameError("a join request lacks an address")
    if wanted is not None and (type(wanted) is not int or not 0 < wanted < 2**31):
        raise BadFrameError("a join request wants no possible node id")
    name = fields.get("name", "")
    if not isinstance(name, str) or len(name) > _ADDRESS_CHARACTERS_MAX:
        raise BadFrameError("a join request has no possible name")
    level = fields.get("level", 1)
    if type(level) is not int or not 0 < level < 2**31:
        raise BadFrameError("a join request knows no possible level of commands")
    try:
        disk, process = UUID(fields.get("disk")), UUID(fields.get("process"))
    except (ValueError, TypeError, AttributeError):
        raise BadFrameError("a join request lacks disk or process") from None
    return Registration(disk=disk, process=process, wanted=wanted, name=name, level=level, **addresses)  # type: ignore[arg-type] # checked above


def encode_admitted(admitted: Admitted) -> dict[str, Any]:
    """The answer as it travels."""
    peers = {str(disk): address for disk, address in admitted.peers.items()}
    return {"cluster_id": str(admitted.cluster_id), "node_id": admitted.node_id, "peers": peers}


# The addresses, `host:port`, that a seed's name stands for now; raises `OSError`.
Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve(seed: str) -> Sequence[str]:
    """Every address of a host's name."""
    host, _, port = seed.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    addresses = (str(place[0]) for *_, place in found)
    return [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in dict.fromkeys(addresses)]


async def join(
    seeds: Sequence[str],
    registration: Registration,
    on_waiting: Callable[[str], None],
    *,
    is_own: Callable[[str], bool] = lambda _: False,
    resolve: Resolve = resolve,
) -> Admitted:
    """Ask at every address of the seeds, resolved anew each time, until one admits; only cancelling ends it otherwise.

    *on_waiting* hears why it takes longer, *is_own* says which of the addresses are this node's.
    """
    pause = _PAUSE_SECONDS_MIN
    while True:
        answer = await _ask_all(seeds, registration, is_own, resolve)
        if isinstance(answer, Admitted):
            return answer
        on_waiting(answer)
        log.debug("join: %s", answer)
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, guards nothing
        pause = min(_PAUSE_SECONDS_MAX, 2 * pause)


async def _ask_all(
    seeds: Sequence[str], registration: Registration, is_own: Callable[[str], bool], resolve: Resolve
) -> Admitted | str:
    """The first admission, or why there is none."""
    addresses: dict[str, None] = {}
    refusals: set[str] = set()
    for seed in seeds:
        try:
            found = [address for address in await resolve(seed) if not is_own(address)]
        except OSError as error:
            refusals.add(f"{seed} has no address: {error.strerror or error}")
            continue
        addresses.update(dict.fromkeys(found))
        if not found:
            refusals.add(f"{seed} is only this node")
    asked = [asyncio.create_task(_ask_to_the_end(address, registration)) for address in addresses]
    try:
        for answered in asyncio.as_completed(asked):
            answer = await answered
            if isinstance(answer, Admitted):
                return answer
            refusals.add(answer)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return "; ".join(sorted(refusals))


async def _ask_to_the_end(seed: str, registration: Registration) -> Admitted | str:
    """Ask there, or whom it names as the leader; why it did not admit."""
    address = seed
    try:
        for _ in range(1 + _REDIRECTS_MAX):
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                answer = await _ask(address, registration)
            if "cluster_id" in answer:
                return _parse_admitted(answer)
            if not isinstance(answer.get("leader"), str):
                return f"{address} answers: {answer.get('refused', 'nothing we understand')}"
            address = answer["leader"]
        return f"{seed} does not know who leads"
    except (OSError, TimeoutError, asyncio.IncompleteReadError, BadFrameError, ValueError) as error:
        return f"{address} does not answer: {error or type(error).__name__}"


async def refuse_others(listener: socket.socket) -> None:
    """Tell whoever asks that this node waits to be admitted itself; until it is cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    refusal = encode_greeting({"refused": "it waits to be admitted itself"})
    while True:
        try:
            accepted, _ = await loop.sock_accept(listener)
        except OSError as error:
            log.debug("a stranger could not be answered: %s", error)
            await asyncio.sleep(_PAUSE_SECONDS_MIN)
            continue
        with accepted:
            accepted.setblocking(False)
            try:
                # `asyncio.wait_for` would swallow a cancellation that comes together with the bytes.
                async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                    # What it asked is read first: closing with it unread would cut off the answer.
                    await loop.sock_recv(accepted, GREETING_BYTES_MAX)
                    await loop.sock_sendall(accepted, refusal)
            except (OSError, TimeoutError) as error:
                log.debug("a stranger could not be answered: %s", error)


async def _ask(address: str, registration: Registration) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_CONNECT_SECONDS_MAX):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        fields = {
            name: str(value) if isinstance(value, UUID) else value for name, value in asdict(registration).items()
        }
        writer.write(encode_greeting({**WIRE.told("join"), "registration": fields}))
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
