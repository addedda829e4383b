"""Clients through the death of a leader: real nodes, three copies of each segment, two acknowledge."""

import itertools
import socket
import struct
import threading
import time
from uuid import UUID

import pytest
from walrus_client import Client, ProducerOptions, errors
from walrus_client.admin import AdminClient
from walrus_client.dev import NodeOptions, start_cluster
from walrus_client.dev.ports import LOOPBACK
from walrus_client.model import Topic
from walrus_client.text import TextClient, encode_frame

PATIENCE_S = 90.0
CURSOR_PARTITIONS = 8
COMMIT_EVERY = 10


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory):
    cluster = start_cluster(tmp_path_factory.mktemp("home") / "dev", nodes=3, options=NodeOptions(monitor_check_ms=200))
    yield cluster
    cluster.purge()


@pytest.fixture
def cluster(three_nodes):
    """All three run when a test begins."""
    three_nodes.start()
    return three_nodes


def leader_of(client: Client, topic: str, partition: int = 0) -> str:
    """The node that leads a partition's open segment."""
    return f"node-{client.segments(topic)[partition].segments[-1].leader.id}"


def cursor_keeper(cluster, topic: Topic, *, without: str = "") -> str:
    """The node that keeps a topic's shared cursor: it leads the cursor's partition of a topic of Walrus's own."""
    partition = UUID(topic.uuid).int % CURSOR_PARTITIONS
    asked = next(node for node in cluster.nodes if node.name != without)
    with AdminClient(f"{LOOPBACK}:{asked.ports.admin}") as admin:
        *_, last = (one for one in admin.segments("_walrus/__cursors") if one.partition == partition)
    return f"node-{last.leader}"


def text_addresses(cluster, *, without: str) -> "itertools.cycle[str]":
    return itertools.cycle(f"{LOOPBACK}:{node.ports.text}" for node in cluster.nodes if node.name != without)


def values(client: Client, topic: str) -> list[int]:
    return [int(record.value) for record in client.read(topic)]


def test_appends_in_flight_when_their_leader_dies_are_stored_once_and_in_order(cluster):
    options = ProducerOptions(batch_records_max=20, linger_ms=0)
    with Client(cluster.bootstrap) as client:
        client.create_topic("in-flight")
        victim = leader_of(client, "in-flight")
        with client.producer("in-flight", options=options) as producer:
            before = [producer.send(b"%d" % n) for n in range(1_000)]
            before[-1].result(PATIENCE_S)
            in_flight = [producer.send(b"%d" % n) for n in range(1_000, 3_000)]
            assert cluster.kill(victim)
            after = [producer.send(b"%d" % n) for n in range(3_000, 4_000)]
            for delivery in [*in_flight, *after]:
                delivery.result(PATIENCE_S)
        assert leader_of(client, "in-flight") != victim
        assert values(client, "in-flight") == list(range(4_000))


def test_single_appends_go_on_by_themselves_when_the_leader_dies(cluster):
    with Client(cluster.bootstrap) as client:
        client.create_topic("single")
        victim = leader_of(client, "single")
        half = threading.Event()
        killer = threading.Thread(target=lambda: half.wait() and cluster.kill(victim))
        killer.start()
        offsets = []
        for n in range(60):
            if n == 30:
                half.set()
            offsets.append(client.append("single", [b"%d" % n]).base_offset)
        killer.join()
        assert [(record.offset, int(record.value)) for record in client.read("single")] == list(
            zip(offsets, range(60), strict=True)
        )


def test_entries_put_over_the_text_protocol_outlive_the_leader_however_many_wait_on_a_connection(cluster):
    """Nothing tells a second try from another entry here: what was sent once and acknowledged is there once."""
    with Client(cluster.bootstrap) as client:
        client.create_topic("put")
        victim = leader_of(client, "put")
        addresses = text_addresses(cluster, without=victim)
        waiting = _Pipelined(next(addresses))
        waiting.send(f"PUT put {n}" for n in range(200))
        assert waiting.answer() == "OK"
        assert cluster.kill(victim)
        answers = ["OK", *(waiting.answer() for _ in range(199))]
        waiting.close()
        at_once = [n for n, answer in enumerate(answers) if answer == "OK"]
        again = [n for n, answer in enumerate(answers) if answer != "OK"]
        for n in again:
            _put_until_taken(addresses, f"PUT put {n}")
        stored = values(client, "put")
        assert [n for n in stored if n in set(at_once)] == at_once
        assert set(stored) == set(range(200))


def test_a_shared_cursor_goes_on_when_the_node_that_keeps_it_dies(cluster):
    count = 200
    with Client(cluster.bootstrap) as client:
        topic = client.create_topic("shared")
        client.append("shared", [b"%d" % n for n in range(count)])
        with TextClient(f"{LOOPBACK}:{cluster.nodes[0].ports.text}") as first:
            assert first.request("GET shared") == "OK 0"  # which makes the internal topic
            assert first.request("COMMIT") == "OK"
        victim = cursor_keeper(cluster, topic)
        committed, handed, since = {0}, {0}, set()
        with TextClient(next(text_addresses(cluster, without=victim))) as consumer:
            deadline = time.monotonic() + PATIENCE_S
            while len(handed) < count:
                assert time.monotonic() < deadline, f"{len(handed)} of {count} entries"
                answer = consumer.request("GET shared")
                if not answer.startswith("OK "):
                    continue  # it is repeated; nothing else comes behind it
                entry = int(answer.removeprefix("OK "))
                assert entry not in committed
                handed.add(entry)
                since.add(entry)
                if len(since) == COMMIT_EVERY and consumer.request("COMMIT") == "OK":
                    committed |= since
                    since = set()
                if len(handed) == count // 2:
                    cluster.kill(victim)
        assert handed == set(range(count))
        assert cursor_keeper(cluster, topic, without=victim) != victim


def _put_until_taken(addresses: "itertools.cycle[str]", command: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for address in addresses:
        try:
            with TextClient(address) as client:
                if client.request(command) == "OK":
                    return
        except errors.Unavailable:
            pass
        assert time.monotonic() < deadline, command


class _Pipelined:
    """A connection on which many requests wait for their answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._answers = self._socket.makefile("rb")

    def send(self, commands) -> None:
        self._socket.sendall(b"".join(map(encode_frame, commands)))

    def answer(self) -> str:
        (length,) = struct.unpack("<I", self._answers.read(4))
        return self._answers.read(length).decode()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
