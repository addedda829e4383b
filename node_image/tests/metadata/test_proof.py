"""Nobody speaks on the Raft port who does not know the secret; real members, real sockets."""

import json
import secrets as random_bytes
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hostile import Hostile
from ledger import address
from members import TIMEOUT_S, Cluster, Member, cluster_of
from waiting import wait_until
from walrus_node.metadata.proof import JOIN, RAFT, Acceptor, Dialler
from walrus_node.metadata.store import Applied
from walrus_node.metadata.wire import GREETING_BYTES_MAX, WIRE, BadFrameError
from walrus_node.secret import Secrets


@pytest.fixture
def shared(tmp_path: Path) -> Secrets:
    (tmp_path / "secret").write_text("the secret of this test\n")
    return Secrets(tmp_path / "secret")


@pytest.fixture
def other(tmp_path: Path) -> Secrets:
    (tmp_path / "other").write_text("a secret of somebody else\n")
    return Secrets(tmp_path / "other")


@pytest.fixture
def member(tmp_path: Path, shared: Secrets) -> Iterator[Member]:
    cluster = Cluster(tmp_path)
    cluster.secrets = shared
    try:
        yield cluster.add_voter()
    finally:
        cluster.stop()


def listed(member: Member) -> Any:
    disk = uuid4()
    told = member.running.propose(address(disk, "127.0.0.1:1"), timeout=TIMEOUT_S).result()
    assert isinstance(told, Applied)
    wait_until("the disk is known", lambda: member.running.status().version >= told.version)
    return disk


def test_members_that_share_a_secret_become_voters(tmp_path: Path, shared: Secrets) -> None:
    with cluster_of(tmp_path, 3, secrets=shared) as cluster:
        assert isinstance(cluster.leader().write("together"), Applied)


@pytest.mark.parametrize("kind", ["hello", "join"])
def test_who_does_not_know_the_secret_is_refused_and_learns_nothing(member: Member, other: Secrets, kind: str) -> None:
    disk = listed(member)
    for secrets in (other, Secrets(None)):
        with Hostile(member) as hostile:
            greeting = {**WIRE.told(kind), "cluster": str(member.owner.cluster_id), "disk": str(disk)}
            assert "share no secret" in hostile.ask(greeting, secrets)["refused"]
            hostile.wait_closed()
    assert isinstance(member.write("goes on"), Applied)


@pytest.mark.parametrize("order", ["no nonce", "short nonce", "no proof", "message first", "greeting twice", "replay"])
def test_no_step_can_be_left_out(member: Member, shared: Secrets, order: str) -> None:
    disk = listed(member)
    greeting = {
        **WIRE.told("hello"),
        "cluster": str(member.owner.cluster_id),
        "disk": str(disk),
        "process": str(uuid4()),
        "raft_address": "127.0.0.1:1",
        "to": None,
    }
    proof = Dialler(shared, RAFT, greeting)
    with Hostile(member) as hostile, Hostile(member) as before:
        if order in ("no nonce", "short nonce"):
            nonce = {"nonce": "00"} if order == "short nonce" else {}
            hostile.frame(json.dumps({**greeting, **nonce}).encode())
        elif order == "message first":
            hostile.frame(proof.greeting)
            hostile.say(type="would_vote", term=1)
        elif order == "no proof":
            hostile.frame(proof.greeting)
            hostile.frame(json.dumps({"hello": 1}).encode())
        elif order == "greeting twice":
            hostile.frame(proof.greeting)
            hostile.frame(proof.greeting)
        else:
            before.frame(proof.greeting)
            nonce = before.receive()
            assert nonce is not None
            answer = proof.hear(nonce)
            assert isinstance(answer, bytes)
            hostile.frame(proof.greeting)
            hostile.frame(answer)  # what another connection would have taken
        hostile.wait_closed()
        assert str(disk) not in {str(known.disk) for known in member.running.status().members if known.connected}
    assert isinstance(member.write("goes on"), Applied)


def exchange(dialler: Dialler, acceptor: Acceptor, answer: dict[str, Any]) -> Any:
    step = acceptor.hear(dialler.greeting)
    assert isinstance(step, bytes)
    proof = dialler.hear(step)
    assert isinstance(proof, bytes)
    assert isinstance(acceptor.hear(proof), dict)
    payload, proved = acceptor.answer(answer)
    assert dialler.hear(payload) is None
    return dialler.hear(proved)


def test_both_ends_hear_what_the_other_one_said(shared: Secrets) -> None:
    assert exchange(Dialler(shared, JOIN, {"join": 1}), Acceptor(shared), {"leader": "here:1"}) == {"leader": "here:1"}


def test_a_member_believes_no_answer_without_a_proof(shared: Secrets, other: Secrets) -> None:
    """Whoever took over the address of a member cannot admit anybody to a cluster of its own."""
    dialler, acceptor = Dialler(shared, JOIN, {"join": 1}), Acceptor(other)
    step = acceptor.hear(dialler.greeting)
    assert isinstance(step, bytes)
    dialler.hear(step)
    dialler.hear(json.dumps({"cluster_id": str(uuid4()), "node_id": 1, "peers": {}}).encode())
    with pytest.raises(BadFrameError, match="share no secret"):
        dialler.hear(json.dumps({"proof": random_bytes.token_hex(32)}).encode())


def test_a_proof_that_is_sent_back_is_no_proof(shared: Secrets) -> None:
    dialler = Dialler(shared, RAFT, {"hello": 1})
    proof = dialler.hear(json.dumps({"nonce": "ab" * 32}).encode())
    assert isinstance(proof, bytes)
    dialler.hear(dialler.greeting)
    with pytest.raises(BadFrameError, match="does not fit"):
        dialler.hear(proof)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"nonce": 7}',
        b'{"nonce": "zz"}',
        b'{"nonce": "\xff"}',
        b"[" * (GREETING_BYTES_MAX - 1),
        b"1" * 9_000,
    ],
)
def test_nonsense_in_place_of_any_step_is_refused(shared: Secrets, payload: bytes) -> None:
    dialler = Dialler(shared, RAFT, {"hello": 1})
    for speak in (Acceptor(shared).hear, dialler.hear):
        with pytest.raises(BadFrameError):
            speak(payload)
    acceptor = Acceptor(shared)
    acceptor.hear(dialler.greeting)
    with pytest.raises(BadFrameError):
        acceptor.hear(payload)
