"""Any node takes any request, whoever leads; rollover and the shared cursor work over real processes."""

import json
import threading

import pytest
from harness.load import producing
from harness.records import check_partition
from walrus_client import Client
from walrus_client.dev import DevCluster
from walrus_client.text import TextClient


@pytest.fixture(scope="module")
def cluster(start) -> DevCluster:
    return start(nodes=3, segment_entries_max=1_000)


def grpc_addresses(cluster: DevCluster) -> list[str]:
    return [f"127.0.0.1:{node.ports.grpc}" for node in cluster.nodes]


def text_addresses(cluster: DevCluster) -> list[str]:
    return [f"127.0.0.1:{node.ports.text}" for node in cluster.nodes]


def test_every_node_takes_every_request_of_the_text_protocol(cluster: DevCluster) -> None:
    sent, got = [], []
    for address in text_addresses(cluster):
        with TextClient(address) as client:
            assert client.request("REGISTER shared") == "OK"
            for number in range(5):
                payload = f"{address} {number}  with blanks  "
                assert client.request(f"PUT shared {payload}") == "OK"
                sent.append("OK " + payload)
            state = json.loads(client.request("STATE shared"))
            assert state["leader_node"] in (1, 2, 3)
            assert json.loads(client.request("METRICS"))["current_leader"] in (1, 2, 3)
    for address in text_addresses(cluster):
        with TextClient(address) as client:
            got.extend(client.request("GET shared") for _ in range(5))
    assert got == sent


def test_a_log_written_through_one_node_is_read_alike_through_every_other(cluster: DevCluster) -> None:
    addresses = grpc_addresses(cluster)
    with Client(addresses[0]) as client:
        client.create_topic("alike")
        for number in range(50):
            client.append("alike", [b"%d" % number])
    views = []
    for address in addresses:
        with Client(address) as client:
            views.append([(record.offset, record.value) for record in client.read("alike")])
    assert views[0] == [(n, b"%d" % n) for n in range(50)]
    assert views[1] == views[0]
    assert views[2] == views[0]


def test_segments_roll_over_all_nodes_under_sixteen_producers_with_readers_following(cluster: DevCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic("rolling")
    seen: list[list[tuple[int, bytes | None]]] = [[], []]

    def follow(out: list[tuple[int, bytes | None]], done: threading.Event) -> None:
        with Client(cluster.bootstrap) as client:
            while True:
                last_round = done.is_set()
                start = out[-1][0] + 1 if out else 0
                out.extend((r.offset, r.value) for r in client.read("rolling", offset=start, wait_ms=200))
                if last_round:
                    return

    done = threading.Event()
    readers = [threading.Thread(target=follow, args=(out, done)) for out in seen]
    for reader in readers:
        reader.start()
    try:
        with producing(cluster.bootstrap, "rolling", producers=16, window=64) as load:
            load.wait_for_more(20_000)
    finally:
        done.set()
        for reader in readers:
            reader.join()

    with Client(cluster.bootstrap) as client:
        partition = client.segments("rolling")[0]
    assert {segment.leader.id for segment in partition.segments if segment.leader} == {1, 2, 3}
    assert len(partition.segments) > 10
    for out in seen:
        assert len(out) == partition.high_watermark
        assert not check_partition(out, acked=load.acked)


def test_eight_readers_on_three_nodes_get_each_entry_once(cluster: DevCluster) -> None:
    entries = 400
    with Client(cluster.bootstrap) as client:
        client.create_topic("queue")
        client.append("queue", [b"%d" % number for number in range(entries)])
    got: list[str] = []

    def drain(address: str) -> None:
        with TextClient(address) as client:
            while (answer := client.request("GET queue")) != "EMPTY":
                got.append(answer.removeprefix("OK "))

    addresses = text_addresses(cluster)
    readers = [threading.Thread(target=drain, args=(addresses[n % 3],)) for n in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert sorted(map(int, got)) == list(range(entries))
