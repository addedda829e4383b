"""A member that hears claims of a disk unknown to its log asks around, and believes whoever was asked."""

import asyncio
import logging
import socket
from pathlib import Path
from uuid import uuid4

import pytest
from answering import answering
from walrus_node.acquaintance import Acquaintance
from walrus_node.metadata.admission import Admitted, JoinRequest, Registration, encode_admitted
from walrus_node.metadata.journal import Owner
from walrus_node.metadata.machine import MetadataMachine
from walrus_node.metadata.raft_store import Place, RaftStore, prepare_to_join
from walrus_node.metadata.wire import GREETING_BYTES_MAX, FrameReader, encode_greeting
from walrus_node.secret import Secrets

TIMEOUT_S = 30.0


def test_a_claim_is_believed_once_those_who_are_asked_confirm_it(tmp_path: Path) -> None:
    """The claimant's address answers first, with voters that do not include it; a seed answers with those of today."""
    cluster_id, disk, claimant = uuid4(), uuid4(), uuid4()

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        prepare_to_join(tmp_path / "metadata", Owner(cluster_id, disk))
        place = Place(tmp_path / "metadata", Owner(cluster_id, disk), uuid4(), "127.0.0.1:1")

        told = [encode_admitted(Admitted(cluster_id, 2, {disk: "new-place:6000"})) for disk in (uuid4(), claimant)]
        async with answering(told[0]) as (other, _), answering(told[1]) as (seed, asked):
            registration = Registration(None, disk, uuid4(), *["orders-1:1"] * 6, name="orders-1", level=1)
            acquaintance = Acquaintance(JoinRequest(registration, Secrets(None)), [seed])
            store = RaftStore(place, MetadataMachine(), listener, on_unknown_voter=acquaintance.hear)
            store.start()
            try:
                acquaintance.hear(store, claimant, other)
                async with asyncio.timeout(TIMEOUT_S):
                    while store.address_of(claimant) != "new-place:6000":
                        await asyncio.sleep(0.005)
            finally:
                await asyncio.to_thread(store.stop)
            assert asked[0]["registration"]["disk"] == str(disk)

    asyncio.run(run())


def test_a_stranger_cannot_confirm_its_own_claim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer is not proved: believed, it would lead away a member whose log is behind."""
    caplog.set_level(logging.DEBUG, "walrus_node.acquaintance")
    cluster_id, disk, claimant = uuid4(), uuid4(), uuid4()
    (tmp_path / "secret").write_text("the secret of this cluster\n")
    secrets = Secrets(tmp_path / "secret")
    forged = encode_admitted(Admitted(cluster_id, 2, {claimant: "stranger:6000"}))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(GREETING_BYTES_MAX)
        steps = [[{"nonce": "00" * 32}], [forged, {"proof": "00" * 32}]]
        while steps:
            for _ in frames.feed(await reader.read(65_536)):
                writer.writelines(map(encode_greeting, steps.pop(0)))
        await reader.read()
        writer.close()

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        prepare_to_join(tmp_path / "metadata", Owner(cluster_id, disk))
        place = Place(tmp_path / "metadata", Owner(cluster_id, disk), uuid4(), "127.0.0.1:1", secrets=secrets)
        registration = Registration(None, disk, uuid4(), *["orders-1:1"] * 6, name="orders-1", level=1)
        acquaintance = Acquaintance(JoinRequest(registration, secrets), [])
        store = RaftStore(place, MetadataMachine(), listener, on_unknown_voter=acquaintance.hear)
        store.start()
        try:
            async with await asyncio.start_server(serve, "127.0.0.1", 0) as stranger, asyncio.timeout(TIMEOUT_S):
                acquaintance.hear(store, claimant, f"127.0.0.1:{stranger.sockets[0].getsockname()[1]}")
                while "nobody says so" not in caplog.text:
                    await asyncio.sleep(0.005)
            assert "its proof does not fit" in caplog.text
            assert store.address_of(claimant) is None
        finally:
            await asyncio.to_thread(store.stop)

    asyncio.run(run())
