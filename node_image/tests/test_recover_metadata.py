"""A majority of the metadata's voters is lost: what is left goes on as another cluster that nothing else can join."""

import json
import shutil
from collections.abc import Callable

import pytest
from node_process import NodeProcess
from text_client import say
from waiting import wait_until
from walrus_client import Client
from walrus_client.admin import AdminClient
from walrus_client.errors import RejectedError


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=20)


def voters(node: NodeProcess) -> set[str]:
    return {member["disk"] for member in node.status()["raft"]["members"] if member["voter"]}


def cluster(node: Callable[..., NodeProcess], count: int) -> list[NodeProcess]:
    """Nodes of one cluster, three of which vote, with ten records in a topic that three of them store."""
    first = node("--bootstrap", "--replication-factor", "3").start()
    first.wait_ready()
    nodes = [first, *(node("--join", first.raft_address).start() for _ in range(count - 1))]
    for started in nodes[1:]:
        started.wait_ready()
    wait_until("three vote", lambda: len(voters(first)) == 3)
    assert say(first, "REGISTER t") == "OK"
    for number in range(10):
        assert say(first, f"PUT t {number}") == "OK"
    return nodes


def test_what_is_left_goes_on_and_the_old_majority_can_neither_join_it_nor_be_taken_for_it(
    node: Callable[..., NodeProcess],
) -> None:
    nodes = cluster(node, 3)
    survivor, lost = nodes[1], [nodes[0], nodes[2]]
    before = survivor.status()
    gone = [made.status()["disk"] for made in lost]
    with admin(survivor) as client:
        with pytest.raises(RejectedError, match="is there"):
            client.recover_metadata(gone)
        for made in lost:
            made.kill()
        with pytest.raises(RejectedError, match="not named as gone"):
            client.recover_metadata([])
        wait_until("they are missed", lambda: all(not made["connected"] for made in others(survivor)))
        cluster_id, left_behind = client.recover_metadata(gone)
    assert left_behind == []
    assert cluster_id != before["cluster_id"]
    wait_until("it is another cluster", lambda: survivor.alive() and is_in(survivor, cluster_id))
    after = survivor.wait_ready()
    assert (after["disk"], after["node_id"]) == (before["disk"], before["node_id"])
    fresh = [node("--join", survivor.raft_address).start() for _ in range(2)]
    for made in fresh:
        made.wait_ready()
    wait_until("records are taken again", lambda: say(survivor, "PUT t 10") == "OK")
    assert [say(survivor, "GET t") for _ in range(11)] == [f"OK {number}" for number in range(11)]

    # The old majority comes back: it has a leader of its own, and its id is another one.
    for made in lost:
        made.start()
    assert {made.wait_ready()["cluster_id"] for made in lost} == {before["cluster_id"]}
    assert voters(survivor).isdisjoint(gone)
    assert {known["disk"] for known in survivor.status()["nodes"]}.isdisjoint(gone)
    # With a disk of the old cluster nobody enters the new one.
    back = lost[0]
    back.stop()
    shutil.rmtree(back.data / "metadata")
    assert back.start("--join", survivor.raft_address).exit_code() == 3


def test_clients_that_live_through_a_recovery_follow_the_cluster_that_goes_on(
    node: Callable[..., NodeProcess], caplog: pytest.LogCaptureFixture
) -> None:
    nodes = cluster(node, 3)
    survivor, lost = nodes[1], [nodes[0], nodes[2]]
    former = survivor.status()["cluster_id"]
    gone = [made.status()["disk"] for made in lost]
    with Client(",".join(f"127.0.0.1:{made.ports['grpc']}" for made in nodes)) as client, admin(survivor) as orders:
        assert client.append("t", [b"10"]).base_offset == 10
        for made in lost:
            made.kill()
        wait_until("they are missed", lambda: all(not made["connected"] for made in others(survivor)))
        cluster_id, _ = orders.recover_metadata(gone)
        wait_until("it is another cluster", lambda: survivor.alive() and is_in(survivor, cluster_id))
        for _ in range(2):
            node("--join", survivor.raft_address).start().wait_ready()
        assert client.append("t", [b"11"]).base_offset == 11
        assert [record.value for record in client.read("t")] == [str(number).encode() for number in range(12)]
        # The former majority comes back where the client knew it, and is not taken for the cluster.
        for made in lost:
            made.start()
        for made in lost:
            made.wait_ready()
        survivor.stop()
        survivor.start().wait_ready()
        assert client.append("t", [b"12"]).base_offset == 12
        assert client.cluster_id() == cluster_id
        assert orders.identity().former_cluster_ids == (former,)
    followed = f"cluster {former} goes on as {cluster_id}, since its metadata were recovered"
    assert [followed in record.getMessage() for record in caplog.records].count(True) == 1


def test_the_others_that_are_left_follow_with_their_disks(node: Callable[..., NodeProcess]) -> None:
    nodes = cluster(node, 4)
    vote = voters(nodes[0])
    lost = [made for made in nodes if made.status()["disk"] in vote][:2]
    left = [made for made in nodes if made not in lost]
    gone = [made.status()["disk"] for made in lost]
    disks = {made.status()["disk"] for made in left}
    recovering = next(made for made in left if made.status()["disk"] in vote)
    for made in lost:
        made.kill()
    wait_until(
        "they are missed",
        lambda: all(not member["connected"] for member in others(recovering) if member["disk"] in gone),
    )
    with admin(recovering) as client:
        cluster_id, left_behind = client.recover_metadata(gone)
    assert left_behind == []
    for made in left:
        wait_until("it is in the new cluster", lambda made=made: made.alive() and is_in(made, cluster_id))  # type: ignore[misc]
        made.wait_ready()
    assert {made.status()["disk"] for made in left} == disks, "as the disks that they were"
    assert all({known["disk"] for known in made.status()["nodes"]} == disks for made in left)


def is_in(node: NodeProcess, cluster_id: str) -> bool:
    """In one look: the node starts again meanwhile, and answers nothing then."""
    code, body = node.get("/api/status")
    facts = json.loads(body) if code == 200 else {}
    return facts.get("ready") is True and facts["cluster_id"] == cluster_id


def others(node: NodeProcess) -> list[dict[str, object]]:
    status = node.status()
    members: list[dict[str, object]] = status["raft"]["members"]
    return [member for member in members if member["voter"] and member["disk"] != status["disk"]]
