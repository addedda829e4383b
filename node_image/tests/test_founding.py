"""A cluster is founded once: an emptied founder comes back into the one that its seeds are in."""

import shutil
from collections.abc import Callable
from typing import Any

from node_process import NodeProcess
from waiting import wait_until


def three(node: Callable[..., NodeProcess]) -> list[NodeProcess]:
    """Nodes that are started alike, but for the first one's --bootstrap; none runs yet."""
    nodes = [node() for _ in range(3)]
    for made in nodes:
        others = ",".join(other.raft_address for other in nodes if other is not made)
        made.flags = ("--join", others, *(("--bootstrap",) if made is nodes[0] else ()))
    return nodes


def voters(status: dict[str, Any]) -> set[str]:
    return {member["disk"] for member in status["raft"]["members"] if member["voter"]}


def test_an_emptied_founder_comes_back_with_its_vote_when_its_disk_is_declared_gone(
    node: Callable[..., NodeProcess],
) -> None:
    """It founded a second cluster; and where it was kept from that, its vote came back after ten minutes only."""
    nodes = three(node)
    for made in nodes:
        made.start()
    founded = [made.wait_ready() for made in nodes]
    assert len({status["cluster_id"] for status in founded}) == 1
    wait_until("all vote", lambda: len(voters(nodes[1].status())) == 3)
    first, lost = nodes[0], founded[0]["disk"]
    first.kill()
    shutil.rmtree(first.data)
    back = first.start("--replaces", lost).wait_ready()
    assert back["cluster_id"] == founded[0]["cluster_id"]
    assert back["disk"] != lost
    others = {status["disk"] for status in founded[1:]}
    wait_until("the vote has moved", lambda: voters(nodes[1].status()) == {back["disk"], *others})
    assert {known["disk"] for known in nodes[1].status()["nodes"]} == {back["disk"], *others}


def test_an_emptied_founder_waits_while_nobody_can_tell_it_of_its_cluster(node: Callable[..., NodeProcess]) -> None:
    nodes = three(node)
    for made in nodes:
        made.start()
    cluster_id = nodes[0].wait_ready()["cluster_id"]
    for made in nodes[1:]:
        made.wait_ready()
    wait_until("all vote", lambda: len(voters(nodes[1].status())) == 3)
    for made in nodes:
        made.kill()
    shutil.rmtree(nodes[0].data)
    nodes[0].start()
    wait_until("it waits", lambda: nodes[0].alive() and "does not answer" in str(nodes[0].get("/readyz")))
    assert nodes[0].status()["cluster_id"] is None
    for made in nodes[1:]:
        made.start()
    assert nodes[0].wait_ready()["cluster_id"] == cluster_id


def test_a_disk_that_is_there_is_not_replaced(node: Callable[..., NodeProcess]) -> None:
    first = node("--bootstrap").start()
    disk = first.wait_ready()["disk"]
    second = node("--join", first.raft_address, "--replaces", disk).start()
    wait_until("it is refused", lambda: second.alive() and "it is not gone" in second.log.read_text())
    assert len(first.status()["nodes"]) == 1


def test_a_damaged_identity_costs_a_node_neither_its_disk_nor_its_id(node: Callable[..., NodeProcess]) -> None:
    """One flipped bit in identity.json, and the node did not start; the founder's as well as that of one who joined."""
    first = node("--bootstrap").start()
    before = [first.wait_ready()]
    second = node("--join", first.raft_address).start()
    before.append(second.wait_ready())
    for stopped in (first, second):
        stopped.stop()
        path = stopped.data / "identity.json"
        content = path.read_bytes()
        path.write_bytes(content[:20] + bytes([content[20] ^ 4]) + content[21:])
    second.flags = ()
    for started in (first, second):
        started.start()
    for started, was in zip((first, second), before, strict=True):
        now = started.wait_ready()
        for name in ("disk", "node_id", "cluster_id"):
            assert now[name] == was[name], name
        assert "identity.json is damaged: made again" in started.log.read_text()
