"""The metadata's state machine: what it does not understand stops this node, for a newer one has applied it."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from waiting import wait_until

pytest.importorskip("walrus_core")

from walrus_node.files import DataRefusedError
from walrus_node.metadata.journal import Owner
from walrus_node.metadata.machine import MetadataMachine
from walrus_node.metadata.raft_store import Place, RaftStore, found
from walrus_node.metadata.store import Applied, Rejected, Unknown
from walrus_node.metadata.transport import listen

TIMEOUT_S = 30.0


def envelope(command: object, *, version: int = 1) -> bytes:
    return json.dumps({"v": version, "id": str(uuid4()), "at_ms": 1, "command": command}).encode()


NEWER = [envelope({"bootstrap": {"cluster_id": str(uuid4())}}, version=2), envelope({"teleport_node": {"node": 1}})]


@pytest.mark.parametrize("command", NEWER, ids=["version", "command"])
def test_a_newer_command_is_told_by_check_and_stops_apply(command: bytes) -> None:
    machine = MetadataMachine()
    refused = machine.check(command)
    assert refused is not None
    assert refused.reason in ("UnsupportedVersion", "Malformed")
    with pytest.raises(DataRefusedError, match="not understood"):
        machine.apply(command)
    assert machine.version() == 0


def founder(directory: Path, machine: MetadataMachine, failures: list[Exception]) -> RaftStore:
    owner = Owner(UUID(int=7), uuid4())
    found(directory, owner, machine.snapshot())
    place = Place(directory, owner, uuid4(), "127.0.0.1:1")
    return RaftStore(place, machine, listen("127.0.0.1", 0), on_failed=failures.append)


def test_a_newer_command_is_not_proposed(tmp_path: Path) -> None:
    store = founder(tmp_path / "metadata", MetadataMachine(), [])
    store.start()
    try:
        assert isinstance(store.barrier(timeout=TIMEOUT_S).result(), Applied)
        before = store.status().last_index
        for command in NEWER:
            assert isinstance(store.propose(command, timeout=TIMEOUT_S).result(), Rejected)
        assert store.status().last_index == before
    finally:
        store.stop()


def test_a_member_stops_at_a_committed_command_that_it_does_not_understand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = []
    machine = MetadataMachine()
    monkeypatch.setattr(machine, "check", lambda _: None)  # as if a newer member had led
    store = founder(tmp_path / "metadata", machine, failures)
    store.start()
    try:
        assert isinstance(store.propose(NEWER[0], timeout=TIMEOUT_S).result(), Unknown)
        wait_until("it stops", lambda: failures)
        assert isinstance(failures[0], DataRefusedError)
        assert store.read().metadata.version == 0
    finally:
        store.stop()
