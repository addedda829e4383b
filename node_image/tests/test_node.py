"""The program from outside: founding, joining, restarting, stopping, and what it refuses."""

import asyncio
import json
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from node_process import NodeProcess
from waiting import wait_until
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.admission import Admitted, JoinRequest, Registration, join
from walrus_node.secret import Secrets

pytest.importorskip("walrus_core")

REFERENCE = Path(__file__).parents[2] / "docs/reference"
Make = Callable[..., NodeProcess]


def three(node: Make) -> list[NodeProcess]:
    first = node("--bootstrap", "--node-id", "1").start()
    others = [node("--join", first.raft_address, "--node-id", str(wanted)).start() for wanted in (2, 3)]
    nodes = [first, *others]
    for each in nodes:
        each.wait_ready()
    wait_until("all vote", lambda: all(voters(each) == 3 for each in nodes))
    return nodes


def voters(node: NodeProcess) -> int:
    return sum(member["voter"] for member in node.status()["raft"]["members"])


def test_a_founder_is_ready_alone(node: Make) -> None:
    founder = node("--bootstrap").start()
    status = founder.wait_ready()
    assert status["node_id"] == 1
    assert status["raft"]["state"] == "leader"
    assert "ready: node 1" in founder.log.read_text()


def test_three_nodes_get_the_wanted_ids_and_vote(node: Make) -> None:
    nodes = three(node)
    assert [each.status()["node_id"] for each in nodes] == [1, 2, 3]
    assert len({each.status()["cluster_id"] for each in nodes}) == 1
    assert {known["node_id"] for known in nodes[2].status()["nodes"]} == {1, 2, 3}


def test_any_member_can_be_asked_to_join(node: Make) -> None:
    first = node("--bootstrap").start()
    first.wait_ready()
    second = node("--join", first.raft_address).start()
    second.wait_ready()
    third = node("--join", second.raft_address).start()
    assert third.wait_ready()["node_id"] == 3


def test_a_node_on_an_empty_disk_waits_and_says_so(node: Make) -> None:
    waiting = node().start()
    wait_until("it answers", lambda: waiting.get("/readyz")[0] == 503)
    wait_until("it says so", lambda: "--bootstrap" in waiting.get("/readyz")[1])
    assert json.loads(waiting.get("/readyz")[1])["missing"] == [
        "admission: the data directory is empty; start with --join HOST:RAFT_PORT, or once with --bootstrap"
    ]
    assert waiting.get("/healthz")[0] == 200
    assert waiting.stop() == 0


def test_a_joiner_waits_for_a_cluster_that_is_not_there_yet(node: Make) -> None:
    founder = node("--bootstrap")
    joiner = node("--join", founder.raft_address).start()
    wait_until("it says so", lambda: "does not answer" in joiner.get("/readyz")[1])
    founder.start()
    joiner.wait_ready()


def test_a_restart_keeps_the_identity_and_takes_the_same_flags(node: Make) -> None:
    nodes = three(node)
    for each in nodes:
        before = each.status()
        assert each.stop() == 0
        each.start()
        after = each.wait_ready()
        for fact in ("node_id", "disk", "cluster_id"):
            assert after[fact] == before[fact]
        assert after["process"] != before["process"]


def test_all_nodes_killed_at_once_come_back(node: Make) -> None:
    nodes = three(node)
    version = max(each.status()["metadata_version"] for each in nodes)
    for each in nodes:
        each.kill()
    for each in nodes:
        each.start()
    for each in nodes:
        each.wait_ready()
        assert each.status()["metadata_version"] >= version


def test_a_node_moves_to_other_addresses(node: Make) -> None:
    nodes = three(node)
    moved = nodes[2]
    moved.stop()
    moved.ports = node().ports
    moved.start()
    moved.wait_ready()
    expected = moved.raft_address
    wait_until(
        "the others know its new address",
        lambda: expected in {known["raft_address"] for known in nodes[0].status()["nodes"]},
    )


@pytest.mark.parametrize("joins", [False, True])
def test_a_crash_before_the_identity_was_completed_is_made_good(node: Make, joins: bool) -> None:
    """The metadata directory is there, but `identity.json` does not know of the cluster yet."""
    founder = node("--bootstrap").start()
    founder.wait_ready()
    crashed = node("--join", founder.raft_address).start() if joins else founder
    before = crashed.wait_ready()
    crashed.kill()
    directory = DataDirectory(crashed.data)
    directory.save_identity(Identity(disk=UUID(before["disk"])))
    directory.unlock()
    crashed.start()
    after = crashed.wait_ready()
    assert (after["cluster_id"], after["node_id"]) == (before["cluster_id"], before["node_id"])


def test_a_stranger_cannot_move_a_disk_that_is_known(node: Make) -> None:
    founder = node("--bootstrap").start()
    before = founder.wait_ready()
    registration = Registration(9, UUID(before["disk"]), uuid4(), *["127.0.0.1:1"] * 6, name="stranger", level=2)
    admitted = asyncio.run(join([founder.raft_address], JoinRequest(registration, Secrets(None)), print))
    assert isinstance(admitted, Admitted)
    assert admitted.node_id == 1
    after = founder.status()
    assert (after["nodes"], after["process"]) == (before["nodes"], before["process"])
    assert founder.get("/readyz")[0] == 200


def test_an_emptied_disk_is_a_new_node(node: Make) -> None:
    nodes = three(node)
    lost = nodes[1]
    lost.kill()
    shutil.rmtree(lost.data)
    lost.start()
    assert lost.wait_ready()["node_id"] == 4


def test_the_others_go_on_when_the_metadata_leader_is_killed(node: Make) -> None:
    nodes = three(node)
    leader = next(each for each in nodes if each.status()["raft"]["state"] == "leader")
    leader.kill()
    rest = [each for each in nodes if each is not leader]
    wait_until("one of them leads", lambda: any(each.status()["raft"]["state"] == "leader" for each in rest))
    for each in rest:
        version = each.status()["metadata_version"]
        wait_until(
            "leases are renewed", lambda each=each, version=version: each.status()["metadata_version"] > version + 3
        )
        assert each.get("/readyz")[0] == 200


def test_a_minority_is_not_ready(node: Make) -> None:
    nodes = three(node)
    nodes[0].kill()
    nodes[1].kill()
    wait_until("it says what is missing", lambda: "lease: not renewed" in nodes[2].get("/readyz")[1])
    assert nodes[2].get("/healthz")[0] == 200
    assert nodes[2].stop() == 0


def test_metrics_are_those_of_python_and_rust(node: Make) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    code, text = founder.get("/metrics")
    assert code == 200
    for name in ("walrus_node_ready 1.0", "walrus_metadata_leader 1.0", "process_resident_memory_bytes"):
        assert name in text
    shown = set(re.findall(r"^# HELP (walrus_\w+)", text, re.MULTILINE))
    pages = "".join((REFERENCE / page).read_text() for page in ("metrics.md", "kafka.md"))
    assert {name for name in shown if f"`{name}`" not in pages and f"`{name}_total`" not in pages} == set()


def test_sigterm_stops_it_in_less_than_two_seconds(node: Make) -> None:
    nodes = three(node)
    for each in nodes:
        started = time.monotonic()
        assert each.stop() == 0
        assert time.monotonic() - started < 2.0


def refused(refusing: NodeProcess, code: int, message: str) -> None:
    """It ends with this code, says why, and shows no traceback."""
    assert refusing.exit_code() == code, refusing.log.read_text()
    log = refusing.log.read_text()
    assert message in log
    assert "Traceback" not in log


@pytest.mark.parametrize("port", ["raft", "http", "admin", "client", "grpc", "peer"])
def test_a_port_in_use_exits_with_4(node: Make, port: str) -> None:
    refusing = node("--bootstrap")
    with socket.create_server(("127.0.0.1", refusing.ports[port])):
        refusing.start()
        refused(refusing, 4, f"--{port}-port")


def test_a_locked_data_directory_exits_with_3(node: Make) -> None:
    running = node("--bootstrap").start()
    running.wait_ready()
    second = node("--bootstrap")
    second.data = running.data
    second.start()
    refused(second, 3, "another process runs on it")


@pytest.mark.parametrize("name", ["journal", "votes", "snapshot"])
def test_damaged_metadata_exits_with_3(node: Make, name: str) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    founder.kill()
    path = founder.data / "metadata" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    founder.start()
    refused(founder, 3, "damaged" if name != "snapshot" else "is refused")


def test_lost_metadata_exits_with_3(node: Make) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    founder.kill()
    shutil.rmtree(founder.data / "metadata")
    founder.start()
    refused(founder, 3, "this disk is in a cluster")


def test_a_wrong_flag_exits_with_2(node: Make) -> None:
    wrong = node("--fsync", "sometimes").start()
    refused(wrong, 2, "'sometimes' is not each, never or <n>ms")
