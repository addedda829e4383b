"""Nodes whose volumes are full refuse what they cannot store, and go on once the volumes are larger.

The volumes are real file systems that grow while the nodes run, as a claim does in Kubernetes.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from node_process import NodeProcess
from volumes import grow, mounted, needed, stuff
from waiting import wait_until
from walrus_client import Client, errors

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
SIZE, LARGER = "96m", "224m"
RECORD_BYTES = 256 * 1024
AFTER = b"after" + bytes(RECORD_BYTES)
BACK_S = 30.0


@pytest.fixture(autouse=True)
def _volumes(tmp_path: Path) -> None:
    needed(tmp_path / "probe")


def started(node: Make, *flags: str) -> NodeProcess:
    made = node(*flags)
    made.behind = mounted(made.data, SIZE)
    return made.start()


def address(node: NodeProcess) -> str:
    return f"127.0.0.1:{node.ports['grpc']}"


def records() -> Iterator[bytes]:
    number = 0
    while True:
        yield number.to_bytes(8, "big") + bytes(RECORD_BYTES - 8)
        number += 1


def fill(client: Client) -> int:
    """Appends until a record is refused, and tried again until the client gives up: how many were acknowledged."""
    for acknowledged, record in enumerate(records()):
        try:
            client.append("orders", [record])
        except (errors.RetryableError, errors.OutcomeUnknown) as refused:
            if "no space left on node" not in str(refused):
                raise
            return acknowledged
    raise AssertionError


def is_taken(client: Client) -> bool:
    try:
        client.append("orders", [AFTER])
    except (errors.RetryableError, errors.OutcomeUnknown):
        return False
    return True


def check(client: Client, acknowledged: int) -> None:
    """All that was acknowledged is there, once and in its order; one more may be, of which nobody was told."""
    found = [int.from_bytes(record.value[:8], "big") for record in client.read("orders") if record.value != AFTER]
    assert found in (list(range(acknowledged)), list(range(acknowledged + 1)))


def processes(nodes: list[NodeProcess]) -> list[int]:
    return [each.process.pid for each in nodes if each.process is not None and each.alive()]


def test_a_node_whose_volume_is_full_takes_writes_again_once_it_is_larger(node: Make) -> None:
    single = started(node, "--bootstrap", "--replication-factor", "1")
    single.wait_ready()
    (process,) = processes([single])
    with Client(address(single), retry_timeout_ms=2_000) as client:
        client.create_topic("orders")
        acknowledged = fill(client)
        assert acknowledged > 100
        grow(process, single.data, LARGER)
        wait_until("it takes writes", lambda: is_taken(client), timeout_s=BACK_S)
        check(client, acknowledged)
    assert processes([single]) == [process]


def test_nodes_without_a_free_page_keep_their_metadata_and_take_writes_again_once_there_is_room(node: Make) -> None:
    first = started(node, "--bootstrap", "--replication-factor", "3")
    nodes = [first, *(started(node, "--join", first.raft_address) for _ in range(2))]
    for each in nodes:
        each.wait_ready()
    before = processes(nodes)
    with Client(address(first), retry_timeout_ms=4_000) as client:
        client.create_topic("orders")
        acknowledged = fill(client)
        assert acknowledged > 50
        for process, each in zip(before, nodes, strict=True):
            stuff(process, each.data)
        term = first.status()["raft"]["term"]
        settings = itertools.count(1_000_000)

        def all_live_on_their_reserve() -> bool:
            """After one command more: the page to which a journal has written last takes some of them."""
            client.alter_topic("orders", config={"retention.ms": next(settings)})
            return all("the metadata lives on its reserve" in each.log.read_text() for each in nodes)

        wait_until("the metadata of all nodes live on their reserve", all_live_on_their_reserve)
        assert not is_taken(client)
        assert all(each.get("/readyz")[0] == 200 for each in nodes)
        assert first.status()["raft"]["term"] == term
        for process, each in zip(before, nodes, strict=True):
            grow(process, each.data, LARGER)
        wait_until("they take writes", lambda: is_taken(client), timeout_s=BACK_S)
        check(client, acknowledged)
    again = "the metadata has its reserve of space again"
    wait_until("it has its reserve again", lambda: all(again in each.log.read_text() for each in nodes))
    assert processes(nodes) == before
