"""Copies of sealed segments on real nodes: made elsewhere when a disk or a node is lost, moved off a drained node."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_process import NodeProcess
from text_client import say
from volumes import mounted, needed
from waiting import wait_until
from walrus_client.admin import AdminClient

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 90.0
FLAGS = ("--segment-entries-max", "5", "--monitor-check-ms", "200")


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def start(node: Make, count: int, zones: str = "") -> list[NodeProcess]:
    """A cluster of three copies, two of which acknowledge, with sealed segments of 23 records; the nodes in *zones*."""
    replication = ("--replication-factor", "3", "--write-quorum", "2")
    where = [("--zone", zone) for zone in zones] or [()] * count
    first = node("--bootstrap", "--node-id", "1", *where[0], *replication, *FLAGS).start()
    first.wait_ready()
    seed = first.raft_address
    joined = [node("--join", seed, "--node-id", str(number + 1), *where[number], *FLAGS) for number in range(1, count)]
    for each in joined:
        each.start().wait_ready()
    nodes = [first, *joined]
    for number in range(23):
        wait_until("it is taken", lambda number=number: say(nodes[0], f"PUT logs {number}") == "OK")
    wait_whole(nodes[0])
    return nodes


def cluster_segments(node: NodeProcess, *more: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "walrus_client.cli", "cluster", "segments", "--topic", "logs", *more]
    address = f"127.0.0.1:{node.ports['admin']}"
    ran = subprocess.run(
        [*command, "--admin", address, "--output", "json"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    listed: list[dict[str, Any]] = json.loads(ran.stdout)
    return listed


def wait_whole(node: NodeProcess, *, without: str = "") -> None:
    """Three verified copies of each sealed segment, none of them on the disk *without*."""

    def is_whole() -> bool:
        sealed = [segment for segment in cluster_segments(node) if segment["state"] == "sealed"]
        good = [
            sum(copy["state"] == "verified" and copy["alive"] and copy["disk"] != without for copy in segment["copies"])
            for segment in sealed
        ]
        return len(sealed) >= 3 and min(good) >= 3

    wait_until("three verified copies of each", is_whole, timeout_s=TIMEOUT_S)


def check_reads(node: NodeProcess) -> None:
    read = {say(node, "GET logs") for _ in range(23)}
    assert read == {f"OK {number}" for number in range(23)}


def held(node: NodeProcess) -> int:
    with admin(node) as client:
        return client.status().bytes_held


def disk(node: NodeProcess) -> str:
    with admin(node) as client:
        return client.identity().disk


def test_a_node_that_lost_its_disk_is_replaced_and_gets_its_copies_again(node: Make) -> None:
    nodes = start(node, 3)
    lost, old = nodes[2], disk(nodes[2])
    lost.kill()
    shutil.rmtree(lost.data)
    lost.start()
    assert lost.wait_ready()["node_id"] == 4
    address = f"127.0.0.1:{nodes[0].ports['admin']}"
    command = [sys.executable, "-m", "walrus_client.cli", "cluster", "replace", old, "--by", "4", "--admin", address]
    assert "is replaced by 4" in subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    wait_whole(nodes[0], without=old)
    with admin(nodes[0]) as client:
        wait_until("nothing moves", lambda: (copies := client.status().copies) and copies.moving == 0)
        assert not client.status().copies.under_replicated
    with admin(lost) as client:
        wait_until("it has caught up", lambda: client.caught_up() == (), timeout_s=TIMEOUT_S)
    check_reads(lost)


def test_a_drained_node_ends_empty_and_leaves(node: Make) -> None:
    nodes = start(node, 4)
    with admin(nodes[0]) as client:
        leaving = disk(nodes[1])
        assert client.status().copies_needed == 3
        assert held(nodes[1]) > 0
        client.start_drain(leaving)
        wait_until("it is drained", lambda: client.drain(leaving).done, timeout_s=TIMEOUT_S)
        wait_until("it says so itself", lambda: held(nodes[1]) == 0, timeout_s=TIMEOUT_S)
        wait_whole(nodes[0], without=leaving)
        client.remove_member(leaving)
    assert cluster_segments(nodes[0], "--under-replicated") == []
    check_reads(nodes[2])


def test_a_silent_node_is_made_up_for_after_the_grace_by_one_that_is_there(node: Make) -> None:
    nodes = start(node, 4)
    silent = nodes[3]
    gone = disk(silent)
    with admin(nodes[0]) as client:
        client.set_config({"copies.grace_ms": 1_000})
    silent.kill()
    wait_whole(nodes[0], without=gone)
    check_reads(nodes[1])


def test_copies_and_voters_follow_the_zones_and_one_zone_may_be_lost(node: Make) -> None:
    nodes = start(node, 3, zones="aab")
    with admin(nodes[0]) as client:
        assert {seen.node_id: seen.zone for seen in client.members()} == {1: "a", 2: "a", 3: "b"}
        wait_until("it is told", lambda: (copies := client.status().copies) is not None and copies.in_one_zone > 0)
    # A leader of the metadata keeps its vote: the other node of its zone gives it up.
    nodes.append(node("--join", nodes[0].raft_address, "--node-id", "4", "--zone", "c", *FLAGS).start())
    nodes[3].wait_ready()

    def are_spread() -> bool:
        with admin(nodes[2]) as client:
            seen = client.status()
        zones = {one.node_id: one.zone for one in seen.nodes}
        voting = {zones[one.node_id] for one in seen.nodes if one.voter}
        copies = [{zones[copy["node_id"]] for copy in one["copies"]} for one in cluster_segments(nodes[2])]
        told = seen.copies is not None and seen.copies.in_one_zone == 0
        return told and voting == {"a", "b", "c"} and all(one == voting for one in copies)

    wait_until("copies and voters are in three zones", are_spread, timeout_s=TIMEOUT_S)
    wait_whole(nodes[2])
    for lost in nodes[:2]:
        lost.kill()
    wait_until("it is taken", lambda: say(nodes[2], "PUT logs 23") == "OK", timeout_s=TIMEOUT_S)
    read = {say(nodes[3], "GET logs") for _ in range(24)}
    assert read == {f"OK {number}" for number in range(24)}


@pytest.fixture
def small_disk(node: Make, tmp_path: Path) -> Make:
    """Makes nodes whose data lie on volumes of 256 MiB, one for each."""
    needed(tmp_path / "probe")

    def make(*flags: str) -> NodeProcess:
        made = node(*flags)
        made.behind = mounted(made.data, "256m")
        return made

    return make


def test_a_node_that_joins_takes_its_share_of_the_copies(small_disk: Make) -> None:
    nodes = start(small_disk, 3)
    value = "x" * 60_000
    for _ in range(250):
        wait_until("it is taken", lambda: say(nodes[0], f"PUT logs {value}") == "OK")
    wait_whole(nodes[0])
    joined = small_disk("--join", nodes[0].raft_address, "--node-id", "4", *FLAGS)
    joined.start().wait_ready()
    assert held(joined) == 0
    with admin(nodes[0]) as client:
        client.set_config({"copies.imbalance_max_points": 1})

    def sealed_copies() -> dict[int, int]:
        """How many sealed copies each node has; nothing while one of them is on its way or leaves."""
        by_node = dict.fromkeys(range(1, 5), 0)
        for segment in cluster_segments(nodes[0]):
            copies = segment["copies"] if segment["state"] == "sealed" else []
            if len(copies) not in (0, 3) or any(copy["state"] != "verified" for copy in copies):
                return {}
            for copy in copies:
                by_node[copy["node_id"]] += 1
        return by_node

    def is_spread() -> bool:
        copies = sealed_copies()
        return bool(copies) and copies[4] > 0 and max(copies.values()) < sum(copies.values()) / 3

    wait_until("the copies are spread", is_spread, timeout_s=TIMEOUT_S)
    wait_whole(nodes[0])
    check_reads(joined)
