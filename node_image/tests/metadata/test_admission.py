"""Asking to join: at every address of a name, whoever else is there, until one admits."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from answering import answering
from walrus_node.metadata import admission
from walrus_node.metadata.admission import (
    Admitted,
    JoinRequest,
    Registration,
    Resolve,
    encode_admitted,
    join,
    refuse_others,
)
from walrus_node.metadata.transport import STRANGERS_MAX
from walrus_node.secret import Secrets

ADMITTED = Admitted(uuid4(), 2, {uuid4(): "orders-0:6000"})
TIMEOUT_S = 30.0


def request() -> JoinRequest:
    registration = Registration(None, uuid4(), uuid4(), *["orders-1:1"] * 6, name="orders-1", level=1)
    return JoinRequest(registration, Secrets(None))


def naming(*addresses: str) -> Callable[[str], Awaitable[Sequence[str]]]:
    async def resolve(seed: str) -> Sequence[str]:
        assert seed == "orders-brokers:6000"
        return addresses

    return resolve


def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def joined(*addresses: str, own: str = "") -> tuple[Admitted, list[str]]:
    waits: list[str] = []
    admitted = await asyncio.wait_for(
        join(
            ["orders-brokers:6000"],
            request(),
            waits.append,
            is_own=lambda address: address == own,
            resolve=naming(*addresses),
        ),
        TIMEOUT_S,
    )
    return admitted, waits


def test_one_address_of_a_name_that_admits_is_enough() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            waiting, _ = await stack.enter_async_context(answering({"refused": "it waits itself"}))
            admitting, asked = await stack.enter_async_context(answering(encode_admitted(ADMITTED)))
            admitted, waits = await joined(nobody(), waiting, admitting)
            assert admitted == ADMITTED
            assert waits == []
            assert asked[0]["registration"]["name"] == "orders-1"

    asyncio.run(run())


def test_an_address_that_is_silent_holds_up_no_other() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with answering(encode_admitted(ADMITTED)) as (admitting, _):
                admitted, _ = await joined(f"127.0.0.1:{silent.getsockname()[1]}", admitting)
                assert admitted == ADMITTED

    asyncio.run(run())


def test_the_own_address_is_not_asked() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            own, asked = await stack.enter_async_context(answering({"refused": "nobody asks itself"}))
            admitting, _ = await stack.enter_async_context(answering(encode_admitted(ADMITTED)))
            admitted, _ = await joined(own, admitting, own=own)
            assert admitted == ADMITTED
            assert asked == []

    asyncio.run(run())


def test_who_names_the_leader_is_followed_to_it() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            leader, _ = await stack.enter_async_context(answering(encode_admitted(ADMITTED)))
            follower, _ = await stack.enter_async_context(answering({"leader": leader}))
            admitted, _ = await joined(follower)
            assert admitted == ADMITTED

    asyncio.run(run())


def test_a_name_is_resolved_anew_at_each_attempt() -> None:
    """The name is like that of a headless service, whose pods come one by one."""

    async def run() -> None:
        async with answering(encode_admitted(ADMITTED)) as (admitting, _):
            known: list[list[str]] = [[], [nobody()], [admitting]]
            waits: list[str] = []

            async def resolve(_: str) -> Sequence[str]:
                found = known.pop(0)
                if not found:
                    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                return found

            joining = join(["orders-brokers:6000"], request(), waits.append, resolve=resolve)
            assert await asyncio.wait_for(joining, TIMEOUT_S) == ADMITTED
            assert waits[0] == "orders-brokers:6000 has no address: Name or service not known"
            assert "does not answer" in waits[1]
            assert len(waits) == 2

    asyncio.run(run())


def test_who_waits_itself_says_so_at_once_and_lets_the_listener_go() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            refusing = asyncio.create_task(refuse_others(listener, Secrets(None)))
            waits: list[str] = []
            seed = f"127.0.0.1:{listener.getsockname()[1]}"
            heard = asyncio.Event()

            def hear(why: str) -> None:
                waits.append(why)
                heard.set()

            joining = asyncio.create_task(join([seed], request(), hear))
            await asyncio.wait_for(heard.wait(), TIMEOUT_S)
            assert waits[0] == f"{seed} answers: it waits to be admitted itself"
            for task in (joining, refusing):
                task.cancel()
            await asyncio.gather(joining, refusing, return_exceptions=True)
            assert listener.fileno() >= 0, "the node's transport takes it over"

    asyncio.run(run())


def test_who_waits_holds_so_many_strangers_and_lets_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """They could take all descriptors of a node that nobody had admitted yet."""
    monkeypatch.setattr(admission, "_CONNECT_MAX_S", 10 * TIMEOUT_S)

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=STRANGERS_MAX) as listener:
            refusing = asyncio.create_task(refuse_others(listener, Secrets(None)))
            port = listener.getsockname()[1]
            strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(STRANGERS_MAX + 5)]
            async with asyncio.timeout(TIMEOUT_S):
                for reader, _ in strangers[:5]:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
            assert not any(reader.at_eof() for reader, _ in strangers[5:])
            refusing.cancel()
            await asyncio.gather(refusing, return_exceptions=True)
            for _, writer in strangers:
                writer.close()

    asyncio.run(run())


def test_who_waits_stops_refusing_when_it_is_told_so_whatever_arrives_then() -> None:
    """With `asyncio.wait_for` it went on for ever if bytes came with the cancellation: the admitted node hung."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for turns in range(40):
            with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as stranger:
                refusing = asyncio.create_task(refuse_others(listener, Secrets(None)))
                stranger.setblocking(False)
                await loop.sock_connect(stranger, listener.getsockname())
                for _ in range(turns % 8):
                    await asyncio.sleep(0)  # to be cancelled at another point each time
                await loop.sock_sendall(stranger, b"x")
                for _ in range(turns // 8):
                    await asyncio.sleep(0)
                refusing.cancel()
                done, _ = await asyncio.wait({refusing}, timeout=TIMEOUT_S)
                assert done

    asyncio.run(run())


LEADERLESS: dict[str, Any] = {"refused": "no metadata leader is known now", "member": True}
EMPTY: dict[str, Any] = {"refused": "it waits", "empty": True}


async def asked_once(
    *addresses: str,
    seeds: Sequence[str] = ("orders-brokers:6000",),
    own: str = "",
    resolve: Resolve | None = None,
    nodes_min: int = 1,
) -> Admitted | str | None:
    """What somebody who may found comes to: an admission, nothing (it founds), or why it waits."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    joining = asyncio.create_task(
        join(
            seeds,
            request(),
            lambda why: None if first.done() else first.set_result(why),
            may_found=True,
            nodes_min=nodes_min,
            is_own=lambda address: address == own,
            resolve=resolve or naming(*addresses),
        )
    )
    done, _ = await asyncio.wait({joining, first}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    assert done
    if joining in done:
        return joining.result()
    joining.cancel()
    return first.result()


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], "founds"),
        ([EMPTY], "founds"),
        ([EMPTY, EMPTY], "founds"),
        ([EMPTY, None], "founds"),
        ([EMPTY, EMPTY, None, None], "founds"),
        ([None], "waits"),
        ([None, None], "waits"),
        ([EMPTY, None, None], "waits"),
        ([EMPTY, LEADERLESS], "waits"),
        ([EMPTY, EMPTY, EMPTY, LEADERLESS], "waits"),
        ([EMPTY, {"leader": "nowhere:1"}], "waits"),
        ([EMPTY, {"leader": "nowhere:99999"}], "waits"),
        ([EMPTY, EMPTY, encode_admitted(ADMITTED)], "joins"),
    ],
)
def test_an_emptied_founder_founds_only_if_a_majority_is_empty_and_none_is_in_a_cluster(
    others: list[dict[str, Any] | None], expected: str
) -> None:
    """It founded a second cluster at once, beside the one that its seeds were in. `None`: nobody answers there."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            addresses = [
                nobody() if other is None else (await stack.enter_async_context(answering(other)))[0]
                for other in others
            ]
            answer = await asked_once(*addresses)
            assert {type(None): "founds", str: "waits", Admitted: "joins"}[type(answer)] == expected, answer

    asyncio.run(run())


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        (["orders-brokers:6000"], None),
        (["orders-0:6000", "orders-1:6000"], "orders-0:6000, orders-1:6000 is only this node"),
        (
            ["orders-0:6000", "gone:6000"],
            "gone:6000 has no address: unknown; orders-0:6000, gone:6000 is only this node",
        ),
    ],
)
def test_a_seed_that_leads_back_here_does_not_make_this_node_the_only_one(
    seeds: list[str], expected: str | None
) -> None:
    """Names that stood for this node alone, as after a wrong entry in the DNS, let it found beside its cluster."""
    own = "192.0.2.1:6000"

    async def resolve(seed: str) -> Sequence[str]:
        if seed == "gone:6000":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [own]

    assert asyncio.run(asked_once(seeds=seeds, own=own, resolve=resolve)) == expected


def test_nodes_that_a_name_has_no_address_of_now_count_as_silent() -> None:
    """One name stands for all pods; while the others were away an emptied founder was all of it, and founded again."""
    own = "192.0.2.1:6000"

    async def run() -> None:
        waits = await asked_once(own, own=own, nodes_min=3)
        assert waits == "orders-brokers:6000 is only this node"
        async with answering(EMPTY) as (other, _):
            assert await asked_once(own, other, own=own, nodes_min=3) is None
            assert await asked_once(own, other, own=own, nodes_min=4) is not None

    asyncio.run(run())


def test_who_does_not_know_the_secret_is_not_taken_for_empty(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "secret").write_text("somebody else's secret")
        async with answering(EMPTY, Secrets(tmp_path / "secret")) as (other, _):
            assert "share no secret" in str(await asked_once(other))

    asyncio.run(run())


def test_a_name_that_is_not_resolved_yet_counts_as_silent() -> None:
    async def run() -> None:
        waits: list[str] = []
        heard = asyncio.Event()

        async def resolve(_: str) -> Sequence[str]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        def hear(why: str) -> None:
            waits.append(why)
            heard.set()

        joining = asyncio.create_task(join(["orders:6000"], request(), hear, may_found=True, resolve=resolve))
        await asyncio.wait_for(heard.wait(), TIMEOUT_S)
        assert "has no address" in waits[0]
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)

    asyncio.run(run())
