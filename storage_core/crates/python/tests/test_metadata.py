"""The metadata's state machine through the binding."""

import json
import subprocess
import sys
import uuid
from typing import Any

import pytest
import walrus_core

NOW_MS = 1_000_000
LEASE_MS = 3_000
CLUSTER, TOPIC = str(uuid.uuid4()), str(uuid.uuid4())


def apply(metadata: walrus_core.Metadata, command: dict[str, object], **fields: object) -> dict[str, object]:
    envelope = {"v": 1, "id": str(uuid.uuid4()), "at_ms": NOW_MS, "command": command, **fields}
    applied: dict[str, object] = json.loads(metadata.apply(json.dumps(envelope).encode()))
    return applied


def register(metadata: walrus_core.Metadata, wanted: int) -> object:
    node = {"wanted": wanted, "disk": str(uuid.uuid4()), "process": str(uuid.uuid4())}
    addresses = {f"{name}_address": f"127.0.0.1:{wanted}" for name in ("raft", "peer", "text", "grpc", "http")}
    return apply(metadata, {"register_node": node | addresses})["answer"]


def renew(metadata: walrus_core.Metadata, node: int) -> None:
    process = metadata.view()["nodes"][str(node)]["process"]
    apply(metadata, {"renew_lease": {"node": node, "process": process, "asked_boottime_ms": 1}})


def founded() -> walrus_core.Metadata:
    metadata = walrus_core.Metadata()
    apply(metadata, {"bootstrap": {"cluster_id": CLUSTER}})
    return metadata


def test_commands_change_the_state_and_answer() -> None:
    metadata = founded()
    assert register(metadata, 3) == {"node": 3}
    assert metadata.version == 2
    view = metadata.view()
    assert view["cluster_id"] == CLUSTER
    assert list(view["nodes"]) == ["3"]


def test_a_refusal_changes_nothing_and_is_remembered() -> None:
    metadata = founded()
    command = {"bootstrap": {"cluster_id": TOPIC}}
    one_id = str(uuid.uuid4())
    for _ in range(2):
        with pytest.raises(walrus_core.Rejected) as raised:
            apply(metadata, command, id=one_id)
        assert (raised.value.reason, raised.value.facts) == ("AlreadyBootstrapped", {"cluster_id": CLUSTER})
    assert metadata.version == 1


def test_a_snapshot_restores_the_same_state() -> None:
    metadata = founded()
    register(metadata, 1)
    again = walrus_core.Metadata.restore(metadata.snapshot())
    assert again.view() == metadata.view()
    assert again.snapshot() == metadata.snapshot()


def test_a_copy_goes_its_own_way() -> None:
    metadata = founded()
    copy = metadata.copy()
    register(metadata, 1)
    assert (copy.version, metadata.version) == (1, 2)
    assert copy.view()["nodes"] == {}


def carried_out(metadata: walrus_core.Metadata, present: walrus_core.Present, **request: Any) -> dict[str, Any]:
    plan = metadata.plan(json.dumps(request), present)
    envelope = plan.envelope(0)
    if envelope is None:
        answer = plan.answer()
    else:
        try:
            metadata.apply(envelope)
            answer = plan.answer()
        except walrus_core.Rejected as rejected:
            answer = plan.answer(json.dumps({"reason": rejected.reason, **rejected.facts}))
    return json.loads(answer) if answer is not None else {"stale": True}


def test_requests_of_a_data_plane_are_carried_out_on_healthy_nodes_in_turn() -> None:
    metadata, presence = founded(), walrus_core.Presence(LEASE_MS)
    for node in (1, 2, 3):
        register(metadata, node)
    presence.observe(metadata, 0)
    naming = {"org": "default", "name": "t", "internal": False}
    create: dict[str, Any] = {"kind": "create_topic", **naming, "partitions": 1, "config": {}}
    assert carried_out(metadata, presence.look(metadata, 0), **create) == {"Err": "no_node"}
    for node in (1, 2, 3):
        renew(metadata, node)
    presence.observe(metadata, 1)
    present = presence.look(metadata, LEASE_MS * 1_000_000)
    assert present.alive == [1, 2, 3]
    created = carried_out(metadata, present, **create)["Ok"]["topic"]
    assert created["created"]
    assert carried_out(metadata, present, **create) == {"Ok": {"topic": {**created, "created": False}}}
    [partition] = metadata.view()["topics"][created["topic"]]["partitions"]
    [first] = [segment["descriptor"] for segment in partition["segments"]]
    roll = {"kind": "begin_roll", "topic": created["topic"], "partition": 0, "segment": first["uuid"]}
    leader = first["leader"]["node"]
    follower = carried_out(metadata, present, **roll, avoid=[])["Ok"]["successor"]
    assert follower["leader"]["node"] == leader % 3 + 1
    avoiding = carried_out(metadata, present, **roll, avoid=[leader % 3 + 1])["Ok"]["successor"]
    assert avoiding["leader"]["node"] == (leader + 1) % 3 + 1
    lapsed = presence.look(metadata, LEASE_MS * 1_000_000 + 1)
    assert lapsed.alive == []
    assert carried_out(metadata, lapsed, **roll, avoid=[]) == {"Err": "no_node"}


def test_a_change_of_settings_names_the_version_that_it_expects() -> None:
    metadata, presence = founded(), walrus_core.Presence(LEASE_MS)
    present = presence.look(metadata, 0)
    change = {"kind": "alter_topic", "topic": str(uuid.uuid4()), "set": {"segment.ms": "5"}, "unset": []}
    for expect in (None, 7):
        envelope = metadata.plan(json.dumps({**change, "expect": expect}), present).envelope(0)
        assert envelope is not None
        assert json.loads(envelope)["expect"] == expect


def test_what_is_no_request_of_a_data_plane_is_told() -> None:
    metadata = founded()
    nobody = walrus_core.Presence(LEASE_MS).look(metadata, 0)
    with pytest.raises(ValueError, match="unknown variant"):
        metadata.plan('{"kind": "nonsense"}', nobody)
    assert metadata.plan('{"kind": "barrier"}', nobody).is_barrier
    assert json.loads(walrus_core.Plan.unavailable("away")) == {"Err": {"unavailable": {"why": "away"}}}


REFUSED_BESIDE_LOOKS = """
import json, threading, uuid
import walrus_core

metadata = walrus_core.Metadata()
command = {"v": 1, "id": str(uuid.uuid4()), "at_ms": 1, "command": {"delete_topic": {"topic": str(uuid.uuid4())}}}
envelope = json.dumps(command).encode()
over = threading.Event()

def refused():
    for _ in range(5_000):
        try:
            metadata.apply(envelope)
        except walrus_core.Rejected:
            pass
    over.set()

threading.Thread(target=refused).start()
while not over.is_set():
    metadata.check(envelope)
    metadata.view()
"""


def test_a_command_that_is_refused_does_not_stop_threads_that_look() -> None:
    """A node whose metadata stood still for good: one thread had the interpreter, the other what it waited for."""
    subprocess.run([sys.executable, "-c", REFUSED_BESIDE_LOOKS], timeout=60, check=True)
