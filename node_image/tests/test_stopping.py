"""A node that is asked to stop hands over what it leads, and nobody waits where there is nobody to take it."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from node_process import NodeProcess
from text_client import say
from waiting import wait_until
from walrus_client import Client, errors
from walrus_client.admin import AdminClient

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 120.0
# Far less than the time that nodes are given below: they did not wait for its end.
LIMIT_S, SOON_S = 90, 30.0


def three(node: Make, *flags: str) -> list[NodeProcess]:
    """Nodes with the ids 1, 2 and 3, in this order, all of which vote and know commands of the highest level."""
    first = node("--bootstrap", "--node-id", "1", "--replication-factor", "3", *flags).start()
    joining = [node("--join", first.raft_address, "--node-id", str(wanted), *flags).start() for wanted in (2, 3)]
    nodes = [first, *joining]
    ids = {each.wait_ready()["node_id"]: each for each in nodes}
    for each in nodes:
        with admin(each) as client:
            wait_until("all vote", lambda client=client: metadata(client).voters == (1, 2, 3), timeout_s=TIMEOUT_S)

    def is_taken() -> bool:
        try:
            client.create_topic("sticky", config={"walrus.leaders": "sticky"})
        except errors.RejectedError:
            return False
        return True

    with Client(address(first)) as client:
        wait_until("topics say where their leaders are", is_taken, timeout_s=TIMEOUT_S)
        for number in range(6):
            client.create_topic(f"idle-{number}", config={"walrus.leaders": "sticky"})
        client.create_topic("rotating", config={"walrus.segment.entries": 25})
    return [ids[number] for number in (1, 2, 3)]


def address(node: NodeProcess) -> str:
    return f"127.0.0.1:{node.ports['grpc']}"


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def metadata(client: AdminClient):  # type: ignore[no-untyped-def] # of the client
    found = client.status().metadata
    assert found is not None
    return found


def state_of(asked: NodeProcess, node_id: int) -> str:
    with admin(asked) as client:
        return next(seen.state for seen in client.members() if seen.node_id == node_id)


def counted(node: NodeProcess, name: str) -> int:
    """The sum of a counter over its labels."""
    lines = node.get("/metrics")[1].splitlines()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if re.match(rf"{name}[ {{]", line))


def lead_all(nodes: list[NodeProcess], wanted: NodeProcess) -> None:
    """Have *wanted* lead the metadata."""
    with admin(wanted) as client:
        disk = client.identity().disk

        def leads() -> bool:
            try:
                client.transfer_leadership(disk)
            except errors.RetryableError:
                return False
            return True

        wait_until("it leads the metadata", leads, timeout_s=TIMEOUT_S)


@contextmanager
def putting(node: NodeProcess, topic: str, acked: list[str]) -> Iterator[None]:
    """Appends to *topic* through *node*, one record after the other, none of which may fail."""
    ends, failed = threading.Event(), []

    def put() -> None:
        number = 0
        while not ends.is_set():
            value = f"{node.ports['client']}-{number}"
            answer = say(node, f"PUT {topic} {value}")
            if answer != "OK":
                failed.append(answer)
                return
            acked.append(value)
            number += 1

    thread = threading.Thread(target=put)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    assert failed == []


def wait_for_more(acked: list[str], count: int = 60) -> None:
    wanted = len(acked) + count
    wait_until("appends are acknowledged", lambda: len(acked) >= wanted, timeout_s=TIMEOUT_S)


def test_a_node_that_is_asked_to_stop_leaves_nothing_to_fail_over_and_no_append_fails(node: Make) -> None:
    nodes = three(node)
    with Client(address(nodes[0])) as client:
        leader = client.segments("sticky")[0].segments[-1].leader.id
    victim, rest = nodes[leader - 1], [each for each in nodes if each is not nodes[leader - 1]]
    lead_all(nodes, victim)
    with admin(rest[0]) as client:
        wait_until("it is known", lambda: metadata(client).leader == leader, timeout_s=TIMEOUT_S)
        term = metadata(client).term
    before = sum(counted(each, "walrus_failovers_total") for each in nodes)
    acked: dict[str, list[str]] = {"sticky": [], "rotating": []}
    with putting(rest[0], "sticky", acked["sticky"]), putting(rest[1], "rotating", acked["rotating"]):
        for records in acked.values():
            wait_for_more(records)
        assert victim.stop() == 0
        told = re.search(r"handed over (\d+) segments; the metadata are led by node (\d+)", victim.log.read_text())
        assert told is not None, victim.log.read_text()[-3_000:]
        assert int(told[1]) >= 1
        for records in acked.values():
            wait_for_more(records)
        assert state_of(rest[0], leader) == "stopping"
        with admin(rest[0]) as client:
            now = metadata(client)
            assert (now.term, now.leader) == (term + 1, int(told[2])), "it was handed over, nobody missed it"
        victim.start()
        victim.wait_ready()
        wait_until("it is up again", lambda: state_of(rest[0], leader) == "up")
        for records in acked.values():
            wait_for_more(records)
    assert sum(counted(each, "walrus_failovers_total") for each in rest) == before
    for topic, expected in acked.items():
        with Client(address(victim)) as client:
            assert [record.value.decode() for record in client.read(topic)] == expected


def test_nodes_that_are_all_asked_to_stop_do_not_wait_for_each_other(node: Make) -> None:
    nodes = three(node, "--hand-over-timeout", f"{LIMIT_S}s")
    assert say(nodes[0], "PUT sticky kept") == "OK"
    began = time.monotonic()
    for each in nodes:
        assert each.process is not None
        each.process.send_signal(signal.SIGTERM)
    assert [each.exit_code() for each in nodes] == [0, 0, 0]
    assert time.monotonic() - began < SOON_S
    for each in nodes:
        each.start()
    for each in nodes:
        each.wait_ready()
    assert say(nodes[1], "PUT sticky more") == "OK"
    assert [say(nodes[2], "GET sticky") for _ in range(2)] == ["OK kept", "OK more"]


def test_ctrl_c_ends_a_node_at_once_and_the_others_take_over_as_when_it_is_killed(node: Make) -> None:
    nodes = three(node)
    with Client(address(nodes[0])) as client:
        leader = client.segments("sticky")[0].segments[-1].leader.id
    victim, other = nodes[leader - 1], nodes[leader % 3]
    assert say(other, "PUT sticky before") == "OK"
    assert victim.process is not None
    victim.process.send_signal(signal.SIGINT)
    assert victim.exit_code() == 0
    assert "handed over" not in victim.log.read_text()
    assert say(other, "PUT sticky after") == "OK"
    rest = [each for each in nodes if each is not victim]
    wait_until("it failed over", lambda: sum(counted(each, "walrus_failovers_total") for each in rest) > 0)
    assert state_of(other, leader) == "up", "nobody said that it stops"


def test_a_second_sigterm_ends_a_hand_over_that_gets_nowhere(node: Make) -> None:
    nodes = three(node, "--hand-over-timeout", f"{LIMIT_S}s")
    victim, *others = nodes
    for other in others:
        assert other.process is not None
        other.process.send_signal(signal.SIGSTOP)  # for a moment nobody knows that they answer no more
    assert victim.process is not None
    victim.process.send_signal(signal.SIGTERM)
    wait_until("it says that it stops", lambda: "stopping: " in victim.get("/readyz")[1])
    began = time.monotonic()
    victim.process.send_signal(signal.SIGTERM)
    assert victim.exit_code() == 0
    assert time.monotonic() - began < SOON_S
    assert "handed over" not in victim.log.read_text()


def test_a_node_that_is_alone_or_is_told_not_to_hands_nothing_over(node: Make) -> None:
    alone = node("--bootstrap", "--hand-over-timeout", f"{LIMIT_S}s").start()
    alone.wait_ready()
    assert say(alone, "PUT t kept") == "OK"
    began = time.monotonic()
    assert alone.stop() == 0
    assert time.monotonic() - began < SOON_S
    told = "handed over 0 segments, 1 stay: nobody else can lead them; the metadata are led by this node"
    assert told in alone.log.read_text()
    alone.start("--hand-over-timeout", "0")
    alone.wait_ready()
    assert alone.stop() == 0
    assert alone.log.read_text().count("handed over") == 1
