"""Who votes in clusters of real nodes: one, three or five, whoever joins, dies and comes back."""

from collections.abc import Callable

import pytest
from node_process import NodeProcess
from waiting import wait_until
from walrus_client import errors
from walrus_client.admin import AdminClient

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 120.0


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def voters(node: NodeProcess) -> set[int]:
    with admin(node) as client:
        metadata = client.status().metadata
        return set(metadata.voters) if metadata else set()


def alive(node: NodeProcess) -> set[int]:
    with admin(node) as client:
        return {seen.node_id for seen in client.members() if seen.alive}


def wait_agreed(nodes: list[NodeProcess], count: int) -> set[int]:
    """All of the nodes that run say that the same nodes vote, so many."""

    def agreed() -> set[int] | None:
        said = [voters(each) for each in nodes]
        return said[0] if all(each == said[0] for each in said) and len(said[0]) == count else None

    return wait_until(f"{count} vote", agreed, timeout_s=TIMEOUT_S)


def set_config(node: NodeProcess, entries: dict[str, int]) -> None:
    def is_set() -> bool:
        try:
            with admin(node) as client:
                client.set_config(entries)
        except errors.RetryableError:
            return False
        return True

    wait_until("the setting is taken", is_set, timeout_s=TIMEOUT_S)


def grow(node: Make, nodes: list[NodeProcess], count: int) -> None:
    while len(nodes) < count:
        number = str(len(nodes) + 1)
        entry = ("--join", nodes[0].raft_address) if nodes else ("--bootstrap",)
        nodes.append(node(*entry, "--node-id", number).start())
        nodes[-1].wait_ready()
    everybody = set(range(1, count + 1))
    wait_until("all are alive", lambda: alive(nodes[0]) == everybody, timeout_s=TIMEOUT_S)


def test_one_three_or_five_vote_and_the_others_observe(node: Make) -> None:
    nodes: list[NodeProcess] = []
    for count, expected in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (7, 5)):
        grow(node, nodes, count)
        assert len(wait_agreed(nodes, expected)) == expected


def test_a_voter_that_stays_away_is_replaced_by_an_observer_and_comes_back_as_one(node: Make) -> None:
    nodes: list[NodeProcess] = []
    grow(node, nodes, 4)
    before = wait_agreed(nodes, 3)
    (observer,) = {1, 2, 3, 4} - before
    lost = max(before)
    set_config(nodes[0], {"copies.grace_ms": 1_000})
    nodes[lost - 1].kill()
    rest = [each for number, each in enumerate(nodes, 1) if number != lost]
    after = before - {lost} | {observer}
    wait_until("the observer votes", lambda: {1, 2, 3, 4} - {lost} == wait_agreed(rest, 3), timeout_s=TIMEOUT_S)
    nodes[lost - 1].start()
    nodes[lost - 1].wait_ready()
    assert wait_agreed(nodes, 3) == after
