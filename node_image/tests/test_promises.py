"""A disk that has forgotten what it promised does not vote again: its node comes back as another one."""

from collections.abc import Callable
from typing import Any

import pytest
import walrus_core
from node_process import NodeProcess
from text_client import say
from waiting import wait_until


def lose_the_end(node: NodeProcess) -> None:
    """What the journal of its store says behind its header is gone."""
    (journal,) = (node.data / "log").glob("journal-*")
    with journal.open("r+b") as file:
        file.truncate(208)


def voters(status: dict[str, Any]) -> set[str]:
    return {member["disk"] for member in status["raft"]["members"] if member["voter"]}


def three(node: Callable[..., NodeProcess], *, copies: int = 3) -> list[NodeProcess]:
    """A cluster of three voters; each of the others was told of the first only."""
    first = node("--bootstrap", "--replication-factor", str(copies)).start()
    first.wait_ready()
    nodes = [first, *(node("--join", first.raft_address).start() for _ in range(2))]
    for started in nodes[1:]:
        started.wait_ready()
    wait_until("all vote", lambda: len(voters(first.status())) == 3)
    return nodes


@pytest.mark.parametrize("copies", [3, 1])
def test_a_node_whose_journal_lost_its_end_comes_back_as_another_disk_by_itself(
    node: Callable[..., NodeProcess], copies: int
) -> None:
    """It started as if nothing had happened, and voted a second time; then it was refused, and somebody had to come."""
    nodes = three(node, copies=copies)
    first = nodes[0]
    was = first.status()
    assert say(nodes[1], "REGISTER t") == "OK"
    for number in range(10):
        assert say(nodes[1], f"PUT t {number}") == "OK"
    first.stop()
    lose_the_end(first)
    first.flags = ()  # neither --bootstrap nor --join: it knows the others from its metadata
    back = first.start().wait_ready()
    assert back["disk"] != was["disk"]
    assert (back["replaces"], back["cluster_id"]) == (was["disk"], was["cluster_id"])
    others = {status.status()["disk"] for status in nodes[1:]}
    wait_until("its vote has moved", lambda: voters(nodes[1].status()) == {back["disk"], *others})
    assert {known["disk"] for known in back["nodes"]} >= {back["disk"], *others}
    assert was["disk"] not in {known["disk"] for known in nodes[1].status()["nodes"]}
    assert [say(first, "GET t") for _ in range(10)] == [f"OK {number}" for number in range(10)]
    former = first.data / "former" / was["disk"]
    wait_until("what is left of the old disk has copies enough, and is removed", lambda: not former.exists())
    first.stop()
    again = first.start().wait_ready()
    assert (again["disk"], again["node_id"]) == (back["disk"], back["node_id"]), "it stays that disk"


def test_a_return_that_is_cut_off_goes_on_where_it_was(node: Callable[..., NodeProcess]) -> None:
    nodes = three(node)
    victim = nodes[2]
    was = victim.status()["disk"]
    victim.stop()
    lose_the_end(victim)
    for other in nodes[:2]:
        other.stop()
    victim.start()
    wait_until("it asks", lambda: victim.alive() and "admission" in str(victim.get("/readyz")))
    minted = victim.status()["disk"]
    assert minted != was
    victim.kill()
    # The node has died, so to speak, between the move of the store and that of the metadata.
    (victim.data / "former" / was / "metadata").rename(victim.data / "metadata")
    for other in nodes[:2]:
        other.start()
    assert victim.start().wait_ready()["disk"] == minted


def test_the_only_node_of_a_cluster_goes_on_and_says_what_may_be_lost(node: Callable[..., NodeProcess]) -> None:
    """It was refused for ever, though nobody else could have voted, and all its records were there."""
    alone = node("--bootstrap").start()
    disk = alone.wait_ready()["disk"]
    assert say(alone, "REGISTER t") == "OK"
    for number in range(10):
        assert say(alone, f"PUT t {number}") == "OK"
    alone.stop()
    lose_the_end(alone)
    for _ in range(2):
        assert alone.start().wait_ready()["disk"] == disk
        alone.stop()
    walrus_core.repair_store(alone.data / "log")
    assert alone.start().wait_ready()["disk"] == disk
    wait_until("the end is told", lambda: say(alone, "GET t") == "OK 0")
    assert say(alone, "PUT t 10") == "OK"
    assert [say(alone, "GET t") for _ in range(10)] == [f"OK {number}" for number in range(1, 11)]
    assert 'alarm="possible_loss"' in alone.log.read_text()
