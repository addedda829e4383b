"""Nodes of neighbouring versions in one cluster, as during an upgrade node by node."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from node_process import NodeProcess
from waiting import wait_until
from walrus_client import Client, errors
from walrus_client.admin import AdminClient, WireVersions
from walrus_client.sender import ProducerOptions

walrus_core = pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 120.0
DATA_REFUSED = 3
LEVEL = walrus_core.Metadata.LEVEL  # what a cluster is raised to once all its nodes are of this version
SETTING = "disks.free_bytes_min"  # a setting that only nodes of command level 2 know


@dataclass
class Load:
    """A producer that appends numbers from 0 on, and how many of them are acknowledged."""

    acked: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def wait_for_more(self, count: int) -> None:
        target = self.acked + count
        wait_until(
            f"{count} more are acknowledged",
            lambda: self.acked >= target or self.failures,
            timeout_s=TIMEOUT_S,
        )
        assert not self.failures, self.failures


@contextmanager
def producing(nodes: list[NodeProcess], topic: str) -> Iterator[Load]:
    load, stop = Load(), threading.Event()

    def produce() -> None:
        options = ProducerOptions(linger_ms=1, delivery_timeout_ms=int(TIMEOUT_S * 1_000))
        try:
            with Client(bootstrap(nodes)) as client, client.producer(topic, options=options) as producer:
                while not stop.is_set():
                    numbers = range(load.acked, load.acked + 20)
                    for delivery in [producer.send(str(number).encode(), partition=0) for number in numbers]:
                        delivery.result()
                    load.acked += len(numbers)
        except Exception as failure:
            load.failures.append(failure)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield load
    finally:
        stop.set()
        thread.join()
    assert not load.failures, load.failures


def bootstrap(nodes: list[NodeProcess]) -> str:
    return ",".join(f"127.0.0.1:{node.ports['grpc']}" for node in nodes)


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def three(node: Make, *flags: str) -> list[NodeProcess]:
    """All vote, so that one can be away."""
    first = node("--bootstrap", "--replication-factor=3", "--write-quorum=2").start(*flags)
    nodes = [first, *(node("--join", first.raft_address).start(*flags) for _ in range(2))]
    for each in nodes:
        each.wait_ready()
    for each in nodes:
        wait_until("three vote", lambda each=each: voters(each) == 3, timeout_s=TIMEOUT_S)
    return nodes


def voters(node: NodeProcess) -> int:
    with admin(node) as client:
        metadata = client.status().metadata
        return len(metadata.voters) if metadata else 0


def restart(node: NodeProcess, *flags: str) -> None:
    assert node.stop() == 0
    node.start(*flags)
    node.wait_ready()
    with admin(node) as client:
        wait_until("it has caught up", lambda: client.caught_up() == (), timeout_s=TIMEOUT_S)


def test_wire_versions_move_on_node_by_node_under_load_and_nothing_is_lost(node: Make) -> None:
    nodes = three(node)
    with Client(bootstrap(nodes)) as client:
        client.create_topic("upgraded")
    with producing(nodes, "upgraded") as load:
        for versions in ("1-3", "2-4"):
            for each in nodes:
                load.wait_for_more(100)
                restart(each, "--test-controls", "--test-wire", versions)
        load.wait_for_more(100)
    for each in nodes:
        with Client(bootstrap([each, *nodes])) as client:
            read = [record.value for record in client.read("upgraded")]
        assert read == [str(number).encode() for number in range(load.acked)]


def test_a_command_is_used_when_all_members_know_it_and_an_older_node_is_kept_out(node: Make) -> None:
    older = ("--test-controls", "--test-level", "1")
    nodes = three(node, *older)
    for each in nodes[:2]:
        restart(each)
        assert reason_of_setting(each, 1 << 20) == "LevelNotReached"
    assert reason_of_setting(nodes[2], 1 << 20) == "UnsupportedLevel"
    restart(nodes[2])
    for number, each in enumerate(nodes):
        wait_until(
            "it may be used",
            lambda each=each, number=number: reason_of_setting(each, (number + 1) << 20) is None,
            timeout_s=TIMEOUT_S,
        )

    late = node("--join", nodes[0].raft_address).start(*older)
    wait_until(
        "it is kept out",
        lambda: f"the cluster uses commands of level {LEVEL}, this node knows up to 1" in late.get("/readyz")[1],
        timeout_s=TIMEOUT_S,
    )
    late.stop()
    late.start()
    late.wait_ready()

    downgraded = nodes[1]
    assert downgraded.stop() == 0
    downgraded.start(*older)
    assert downgraded.exit_code() == DATA_REFUSED
    assert f"has level {LEVEL}, this node knows up to 1: upgrade it" in downgraded.log.read_text()
    downgraded.start()
    downgraded.wait_ready()


def test_the_level_waits_for_the_word_under_load_and_until_then_every_node_goes_back(node: Make) -> None:
    newer = ("--finalize", "manual")
    older = (*newer, "--test-controls", "--test-level", str(LEVEL - 1))
    nodes = three(node, *older)
    for each in nodes:  # a cluster that was just founded waits for nobody
        wait_until("the first level is in use", lambda each=each: level(each)[0] == LEVEL - 1, timeout_s=TIMEOUT_S)
    with Client(bootstrap(nodes)) as client:
        client.create_topic("upgraded")
    with producing(nodes, "upgraded") as load:
        for each in nodes[:2]:
            load.wait_for_more(100)
            restart(each, *newer)
        assert level(nodes[0]) == (LEVEL - 1, LEVEL - 1)
        with admin(nodes[0]) as client, pytest.raises(errors.RejectedError, match="knows commands up to level"):
            client.finalize_level(LEVEL)
        restart(nodes[2], *newer)
        wait_for_rounds(nodes[0])
        assert level(nodes[0]) == (LEVEL - 1, LEVEL)
        for each in nodes:
            load.wait_for_more(100)
            restart(each, *older)
        assert level(nodes[0]) == (LEVEL - 1, LEVEL - 1)
        for each in nodes:
            restart(each, *newer)
        assert f"{LEVEL - 1}; all nodes know {LEVEL}" in cluster(nodes[1], "status")
        assert cluster(nodes[1], "finalize").startswith(f"commands up to level {LEVEL} are used from now on")
        assert cluster(nodes[1], "finalize") == f"level {LEVEL} of commands is in use already\n"
        with admin(nodes[1]) as client:
            assert client.finalize_level(LEVEL - 1) == LEVEL
            assert {member.level_known for member in client.members()} == {LEVEL}
        load.wait_for_more(100)
        assert nodes[2].stop() == 0
        nodes[2].start(*older)
        assert nodes[2].exit_code() == DATA_REFUSED
        assert f"has level {LEVEL}, this node knows up to {LEVEL - 1}: upgrade it" in nodes[2].log.read_text()
        nodes[2].start(*newer)
        nodes[2].wait_ready()
    with Client(bootstrap(nodes)) as client:
        read = [record.value for record in client.read("upgraded")]
    assert read == [str(number).encode() for number in range(load.acked)]


def test_a_node_tells_what_it_knows_and_speaks_before_it_is_in_a_cluster(node: Make) -> None:
    waiting = node().start()
    wait_until("it answers", lambda: waiting.get("/readyz")[0] == 503)
    with admin(waiting) as client:
        told = client.status()
        assert told.level_known == LEVEL
        assert told.wire_versions == WireVersions(*walrus_core.DataPlane.WIRE_VERSIONS)
        assert told.metadata is None
    assert waiting.stop() == 0
    waiting.start("--test-controls", "--test-level", "4", "--test-wire", "2-4")
    wait_until("it answers", lambda: waiting.get("/readyz")[0] == 503)
    with admin(waiting) as client:
        assert (client.status().level_known, client.status().wire_versions) == (4, WireVersions(2, 4))


def cluster(node: NodeProcess, command: str) -> str:
    """What a command of `walrus cluster` prints."""
    admin = f"127.0.0.1:{node.ports['admin']}"
    words = [sys.executable, "-m", "walrus_client.cli", "cluster", command, "--admin", admin]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def level(node: NodeProcess) -> tuple[int, int]:
    """The level in use, and the one that all members know."""
    with admin(node) as client:
        metadata = client.status().metadata
    assert metadata is not None
    return metadata.level, metadata.level_reachable


def wait_for_rounds(node: NodeProcess) -> None:
    """Waits until every node has renewed its lease several times; with each the leader looks at the level."""

    def version() -> int:
        with admin(node) as client:
            metadata = client.status().metadata
        return metadata.version if metadata else 0

    before = version()
    wait_until("leases are renewed", lambda: version() > before + 9, timeout_s=TIMEOUT_S)


def test_listeners_of_organisations_are_told_once_all_members_know_them(node: Make) -> None:
    nodes = three(node, "--test-controls", "--test-level", "1")
    listener = ("--grpc-listener", "acme=127.0.0.1:0,org=acme")
    with Client(bootstrap(nodes)) as client:
        client.create_topic("t")
        client.append("t", [b"ours"])
    for each in nodes[:2]:
        restart(each, *listener)
        with admin(each) as client:
            with pytest.raises(errors.RejectedError) as refused:
                client.set_organisation("acme")
            assert refused.value.reason == "LevelNotReached"
            assert not any(member.listeners for member in client.members())
        with Client(bootstrap([each])) as client:
            client.append("t", [b"ours"])
    restart(nodes[2], *listener)
    with admin(nodes[2]) as client:
        told = wait_until("all are told", lambda: listeners_of(client), timeout_s=TIMEOUT_S)
        client.set_organisation("acme")
    with Client(",".join(told)) as theirs, Client(bootstrap(nodes)) as ours:
        assert theirs.topics() == []
        theirs.create_topic("t")
        theirs.append("t", [b"theirs"])
        assert [record.value for record in theirs.read("t")] == [b"theirs"]
        assert [record.value for record in ours.read("t")] == [b"ours"] * 3


def listeners_of(client: AdminClient) -> list[str]:
    """The addresses of the organisation's listeners; none before every member has told one."""
    members = [member.listeners for member in client.members()]
    return [listener.address for listeners in members for listener in listeners] if all(members) else []


def reason_of_setting(node: NodeProcess, value: int) -> str | None:
    """Why a setting of the newer level is refused; `None` where it is taken."""
    with admin(node) as client:
        try:
            client.set_config({SETTING: value})
        except errors.RejectedError as refused:
            return refused.reason
    return None
