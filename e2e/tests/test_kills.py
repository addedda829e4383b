"""Nodes are killed with SIGKILL under load: what was acknowledged is there, once, in order, unchanged."""

import itertools
import random

import pytest
from harness.load import producing
from harness.records import Findings, check_partition
from harness.waiting import wait_until
from walrus_client import Client
from walrus_client.dev import DevCluster

SEGMENT_ENTRIES = 5_000


@pytest.fixture(scope="module")
def cluster(start) -> DevCluster:
    return start(nodes=3, segment_entries_max=SEGMENT_ENTRIES)


def open_leader(cluster: DevCluster, topic: str) -> str:
    """Name of the node that leads the topic's open segment."""
    with Client(cluster.bootstrap) as client:
        leader = client.segments(topic)[0].segments[-1].leader
    assert leader is not None
    return next(node.name for node in cluster.nodes if node.node_id == leader.id)


def findings(cluster: DevCluster, topic: str, acked: dict[int, int]) -> Findings:
    with Client(cluster.bootstrap) as client:
        return check_partition(((r.offset, r.value) for r in client.read(topic)), acked=acked)


def test_the_leader_of_the_open_segment_is_killed_again_and_again(cluster: DevCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic("leaders")
    with producing(cluster.bootstrap, "leaders", producers=4) as load:
        for _ in range(5):
            load.wait_for_more(1_500)
            victim = open_leader(cluster, "leaders")
            cluster.kill(victim)
            cluster.start([victim])
        load.wait_for_more(1_500)
    assert not findings(cluster, "leaders", load.acked)


def test_random_nodes_are_killed_while_segments_roll(cluster: DevCluster) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Client(cluster.bootstrap) as client:
        client.create_topic("anyone")
    with producing(cluster.bootstrap, "anyone", producers=4) as load:
        for _ in range(6):
            load.wait_for_more(chance.randrange(500, 6_000))
            victim = chance.choice(cluster.nodes).name
            cluster.kill(victim)
            load_before = load.total()
            cluster.start([victim])
            wait_until("writes to go on", lambda before=load_before: load.total() > before or bool(load.failures))
    assert not findings(cluster, "anyone", load.acked)
    with Client(cluster.bootstrap) as client:
        segments = client.segments("anyone")[0].segments
    assert len(segments) >= load.total() // (2 * SEGMENT_ENTRIES)  # the batch that crosses the limit is the last one in
    assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(segments))


def test_all_nodes_are_killed_at_once_and_started_again(cluster: DevCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic("blackout")
    with producing(cluster.bootstrap, "blackout", producers=2) as load:
        load.wait_for_more(2_000)
        for node in cluster.nodes:
            cluster.kill(node.name)
        cluster.start()
        load.wait_for_more(2_000)
    assert not findings(cluster, "blackout", load.acked)


def test_all_nodes_are_restarted_in_turn_without_a_failed_append(cluster: DevCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic("turns")
    with producing(cluster.bootstrap, "turns", producers=2) as load:
        for node in cluster.nodes:
            load.wait_for_more(1_000)
            cluster.restart(node.name)
        load.wait_for_more(1_000)
    assert not findings(cluster, "turns", load.acked)
