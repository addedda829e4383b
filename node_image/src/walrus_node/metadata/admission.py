"""How a new disk enters the cluster: one JSON request on the Raft port, one answer.

The node that is asked proposes the registration if it leads, else names the leader. Asking again, or many at once, is
harmless: a disk that was admitted before gets the same id. Who waits to be admitted itself says so.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from walrus_node.address import Address
from walrus_node.metadata.proof import JOIN, Acceptor, Dialler, RefusedError
from walrus_node.metadata.reports import Listener
from walrus_node.metadata.transport import STRANGERS_MAX
from walrus_node.metadata.wire import GREETING_BYTES_MAX, WIRE, BadFrameError, FrameReader, Versions, encode_frame
from walrus_node.secret import Secrets
from walrus_node.words import told

log = logging.getLogger(__name__)

_ANSWER_MAX_S = 10.0
_CONNECT_MAX_S = 2.0
_PAUSE_MIN_S = 0.2
_PAUSE_MAX_S = 3.0
_REDIRECTS_MAX = 5
_WAITS = "it waits to be admitted itself"
_NAME_CHARACTERS_MAX = 300


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
    # The zone that it is in. It is told once all members know of such.
    zone: str = ""
    # Beside the two of the organisation `default`. They are told once all members know of such.
    listeners: tuple[Listener, ...] = ()


@dataclass(frozen=True)
class JoinRequest:
    """What a node asks with."""

    registration: Registration
    secrets: Secrets
    # The disk in whose place it comes.
    replaces: UUID | None = None


@dataclass(frozen=True)
class Refusal:
    """Why one place did not admit."""

    why: str
    # It proved to be a node that waits itself, on an empty disk.
    is_empty: bool = False
    # It proved to be in a cluster.
    is_member: bool = False


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
    if WIRE.negotiate(theirs) is None:
        raise BadFrameError(WIRE.refusal(theirs))
    if not isinstance(fields, dict):
        raise BadFrameError("a join request lacks its registration")
    wanted = fields.get("wanted")
    addresses = {name: fields.get(name) for name in Registration.__dataclass_fields__ if name.endswith("_address")}
    for field, value in addresses.items():
        try:
            Address.parse(value if isinstance(value, str) else "", port_min=1 if field == "raft_address" else 0)
        except ValueError as wrong:
            raise BadFrameError(f"a join request has no possible {field}: {wrong}") from None
    if wanted is not None and (type(wanted) is not int or not 0 < wanted < 2**31):
        raise BadFrameError("a join request wants no possible node id")
    name = fields.get("name", "")
    if not isinstance(name, str) or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
        raise BadFrameError("a join request has no possible name")
    level = fields.get("level", 1)
    if type(level) is not int or not 0 < level < 2**31:
        raise BadFrameError("a join request knows no possible level of commands")
    try:
        disk, process = UUID(fields.get("disk")), UUID(fields.get("process"))
    except (ValueError, TypeError, AttributeError):
        raise BadFrameError("a join request lacks disk or process") from None
    return Registration(disk=disk, process=process, wanted=wanted, name=name, level=level, **addresses)  # type: ignore[arg-type] # checked above


def parse_replaces(greeting: dict[str, Any]) -> UUID | None:
    """The disk in whose place a stranger comes; raises `BadFrameError`."""
    replaced = greeting.get("replaces")
    try:
        return None if replaced is None else UUID(replaced)
    except (ValueError, TypeError, AttributeError):
        raise BadFrameError("a join request replaces no possible disk") from None


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
    request: JoinRequest,
    on_waiting: Callable[[str], None],
    *,
    may_found: bool = False,
    nodes_min: int = 1,
    is_own: Callable[[str], bool] = lambda _: False,
    resolve: Resolve = resolve,
) -> Admitted | None:
    """Ask at every address of the seeds, resolved anew each time, until one admits; only cancelling ends it otherwise.

    With *may_found* it also ends, with `None`, when a majority of all these addresses, this node's own included, is
    proved to be empty, and none to be in a cluster. Of the seeds at most one is this node: another one that leads here
    stands for a node that nobody has asked; *nodes_min* are counted at least, for a name may have fewer addresses than
    there are nodes while these are away. *on_waiting* hears why it takes longer, *is_own* says which of the
    addresses are this node's.
    """
    pause = _PAUSE_MIN_S
    while True:
        found, unknown = await _resolve_all(seeds, resolve)
        others = list(dict.fromkeys(address for place in found for address in place if not is_own(address)))
        only_here = sum(all(map(is_own, place)) for place in found)
        answer = await ask_members(others, request, lambda _: True)
        if isinstance(answer, Admitted):
            return answer
        places = 1 + len(others) + len(unknown) + max(0, only_here - 1)
        if may_found and _none_is_founded(answer, places=max(places, nodes_min)):
            return None
        why = [*unknown, *(refusal.why for refusal in answer)]
        if found and not others:
            why.append(f"{', '.join(seeds)} is only this node")
        reasons = "; ".join(sorted(set(why)))
        on_waiting(reasons)
        log.debug("join: %s", reasons)
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, guards nothing
        pause = min(_PAUSE_MAX_S, 2 * pause)


def _none_is_founded(refusals: Sequence[Refusal], *, places: int) -> bool:
    """Whether the node that asked may found: whoever is silent may be in a cluster, but no majority is."""
    empty = 1 + sum(refusal.is_empty for refusal in refusals)
    return not any(refusal.is_member for refusal in refusals) and 2 * empty > places


async def _resolve_all(seeds: Sequence[str], resolve: Resolve) -> tuple[list[Sequence[str]], list[str]]:
    """The addresses of each seed, and why there is none of a seed."""
    found = []
    unknown = []
    for seed in seeds:
        try:
            found.append(await resolve(seed))
        except (OSError, UnicodeError) as error:
            unknown.append(f"{seed} has no address: {getattr(error, 'strerror', None) or error}")
    return found, unknown


async def ask_members(
    addresses: Sequence[str], request: JoinRequest, serves: Callable[[Admitted], bool]
) -> Admitted | list[Refusal]:
    """Ask once at all of them; the first admission that serves, or why there is none."""
    asked = [asyncio.create_task(_ask_to_the_end(address, request)) for address in addresses]
    refusals = []
    try:
        for answered in asyncio.as_completed(asked):
            answer = await answered
            if isinstance(answer, Refusal):
                refusals.append(answer)
            elif serves(answer):
                return answer
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return refusals


async def _ask_to_the_end(seed: str, request: JoinRequest) -> Admitted | Refusal:
    """Ask there, or whom it names as the leader."""
    address, is_member = seed, False
    try:
        for _ in range(1 + _REDIRECTS_MAX):
            async with asyncio.timeout(_ANSWER_MAX_S):
                answer = await _ask(address, request)
            if "cluster_id" in answer:
                return _parse_admitted(answer)
            is_empty = answer.get("empty") is True
            is_member = is_member or not is_empty  # whoever waits itself says so
            if not isinstance(answer.get("leader"), str):
                why = f"{address} answers: {told(answer.get('refused', 'nothing we understand'))}"
                return Refusal(why, is_empty=is_empty and not is_member, is_member=is_member)
            address = answer["leader"]
        return Refusal(f"{seed} does not know who leads", is_member=is_member)
    except RefusedError as refused:
        return Refusal(f"{address} answers: {refused}", is_member=is_member)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, BadFrameError, ValueError) as error:
        return Refusal(f"{address} does not answer: {error or type(error).__name__}", is_member=is_member)


async def refuse_others(listener: socket.socket, secrets: Secrets) -> None:
    """Tell whoever asks that this node waits to be admitted itself and its disk is empty; until it is cancelled."""
    strangers: dict[asyncio.StreamWriter, None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strangers[writer] = None
        if len(strangers) > STRANGERS_MAX:
            next(iter(strangers)).transport.abort()  # the oldest, as in the transport: its time is up first
        try:
            await _refuse(secrets, reader, writer)
        finally:
            del strangers[writer]

    server = await asyncio.start_server(serve, sock=listener.dup())
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


async def _refuse(secrets: Secrets, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    payloads, proof = _payloads(reader), Acceptor(secrets)
    try:
        async with asyncio.timeout(_CONNECT_MAX_S):
            async for payload in payloads:
                step = proof.hear(payload)
                if isinstance(step, dict):
                    writer.writelines(map(encode_frame, proof.answer({"refused": _WAITS, "empty": True})))
                    break
                writer.write(encode_frame(step))
            await writer.drain()
    except (OSError, TimeoutError, BadFrameError) as error:
        log.debug("somebody who asked to join was not answered: %s", error)
    finally:
        writer.close()


async def _payloads(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The frames of a greeting, until the other side ends."""
    frames = FrameReader(GREETING_BYTES_MAX)
    while data := await reader.read(GREETING_BYTES_MAX):
        for payload in frames.feed(data):
            yield payload


async def _ask(address: str, request: JoinRequest) -> dict[str, Any]:
    """The proved answer; raises `RefusedError` for a refusal that is not proved."""
    place = Address.parse(address)
    async with asyncio.timeout(_CONNECT_MAX_S):
        reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        facts = asdict(request.registration)
        fields = {name: str(fact) if isinstance(fact, UUID) else fact for name, fact in facts.items()}
        greeting: dict[str, object] = {**WIRE.told("join"), "registration": fields}
        if request.replaces is not None:
            greeting["replaces"] = str(request.replaces)
        proof = Dialler(request.secrets, JOIN, greeting)
        writer.write(encode_frame(proof.greeting))
        async for payload in _payloads(reader):
            step = proof.hear(payload)
            if isinstance(step, dict):
                return step
            if step is not None:
                writer.write(encode_frame(step))
        raise ConnectionError("connection closed without an answer")
    finally:
        writer.close()


def _parse_admitted(answer: dict[str, Any]) -> Admitted:
    try:
        peers = {UUID(disk): str(Address.parse(address)) for disk, address in answer["peers"].items()}
        return Admitted(UUID(answer["cluster_id"]), int(answer["node_id"]), peers)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise BadFrameError("an admission that we do not understand") from None
