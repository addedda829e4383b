"""Consumer groups of librdkafka: members that share, leave and come back, a coordinator that dies, one that sleeps."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka_connection import KafkaConnection
from node_process import NodeProcess
from text_client import say
from waiting import wait_until
from walrus_client import Client

PATIENCE_S = 60
PARTITIONS = 4
RECORDS = 400
SESSION_MS = 6_000  # the shortest that a member may have
METADATA = "m" * 4_000  # nearly the most that a commit may say of a partition
LONG_COMMIT = 2_050  # partitions of a commit that say so much, in the 8 MiB that it may have
NOT_TAKEN = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

Make = Callable[..., NodeProcess]


@pytest.fixture
def nodes(node: Make) -> list[NodeProcess]:
    """Three nodes of one cluster, each record on two of them at least."""
    first = node("--bootstrap", "--replication-factor", "3").start()
    started = [first, *(node("--join", first.raft_address).start() for _ in range(2))]
    for each in started:
        each.wait_ready()
    # Before all three vote the metadata cannot do without one of them.
    wait_until("all vote", lambda: sum(member["voter"] for member in first.status()["raft"]["members"]) == 3)
    return started


@pytest.fixture
def alone(node: Make) -> NodeProcess:
    started = node("--bootstrap").start()
    started.wait_ready()
    return started


def addresses(nodes: list[NodeProcess]) -> str:
    return ",".join(f"127.0.0.1:{each.ports['kafka']}" for each in nodes)


def create(nodes: list[NodeProcess], topic: str) -> None:
    with Client(f"127.0.0.1:{nodes[0].ports['grpc']}") as client:
        client.create_topic(topic, partitions=PARTITIONS)


def produce(nodes: list[NodeProcess], topic: str, numbers: range) -> None:
    by = Producer({"bootstrap.servers": addresses(nodes), "enable.idempotence": True})
    failures: list[KafkaError] = []
    for number in numbers:
        by.produce(
            topic,
            value=str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert by.flush(PATIENCE_S) == 0
    assert not failures


class Reader:
    """A member of a group, and what it has read."""

    def __init__(self, nodes: list[NodeProcess], group: str, topic: str, **options: Any) -> None:
        common = {
            "bootstrap.servers": addresses(nodes),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 15_000,
            "heartbeat.interval.ms": 500,
        }
        self.consumer = Consumer({**common, **options})
        self.consumer.subscribe([topic], on_revoke=self._note_revoked)
        self.values: list[int] = []
        self.revoked: list[int] = []

    def _note_revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.revoked.extend(place.partition for place in places)

    def poll(self) -> None:
        message: Message | None = self.consumer.poll(0.05)
        if message is None:
            return
        if message.error() is not None:
            # What librdkafka tells while it looks for another coordinator or leader; it goes on by itself.
            assert message.error().retriable() or message.error().code() in (
                KafkaError._TRANSPORT,
                KafkaError._ALL_BROKERS_DOWN,
                KafkaError._TIMED_OUT,
            ), message.error()
            return
        self.values.append(int(message.value()))

    def partitions(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def run(readers: list[Reader], what: str, until: Callable[[], bool]) -> None:
    """Has members read, turn by turn, until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        for reader in readers:
            reader.poll()


def total(places: list[TopicPartition]) -> int:
    """The sum of offsets; a partition of which nothing was read has a negative one."""
    return sum(max(place.offset, 0) for place in places)


def share(readers: list[Reader]) -> bool:
    """Whether each partition has one reader, and each reader as many as the others."""
    shares = [reader.partitions() for reader in readers]
    counts = {len(mine) for mine in shares}
    return sorted(place for mine in shares for place in mine) == list(range(PARTITIONS)) and len(counts) == 1


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_those_of_one_that_leaves(alone: NodeProcess, strategy: str) -> None:
    nodes = [alone]
    create(nodes, "t")
    options = {"partition.assignment.strategy": strategy}
    first = Reader(nodes, "g", "t", **options)
    run([first], "the first has all", lambda: len(first.partitions()) == PARTITIONS)
    second = Reader(nodes, "g", "t", **options)
    run([first, second], "both have two", lambda: share([first, second]))
    produce(nodes, "t", range(RECORDS))
    run([first, second], "all is read", lambda: len({*first.values, *second.values}) == RECORDS)
    assert sorted(first.values + second.values) == list(range(RECORDS)), "each record once"
    first.consumer.commit(asynchronous=False)
    first.close()
    run([second], "the second has all", lambda: len(second.partitions()) == PARTITIONS)
    produce(nodes, "t", range(RECORDS, 2 * RECORDS))
    run([second], "the rest is read", lambda: set(range(RECORDS, 2 * RECORDS)) <= set(second.values))
    second.close()


def test_what_is_committed_is_where_a_group_goes_on_after_a_kill(alone: NodeProcess) -> None:
    nodes = [alone]
    create(nodes, "t")
    produce(nodes, "t", range(RECORDS))
    reader = Reader(nodes, "g", "t")
    run([reader], "half is read", lambda: len(reader.values) >= RECORDS // 2)
    read = list(reader.values)
    assert total(reader.consumer.commit(asynchronous=False)) == len(read)
    alone.kill()
    alone.start().wait_ready()
    run([reader], "the rest is read", lambda: len(set(reader.values)) == RECORDS)
    reader.close()  # commits nothing
    other = Reader(nodes, "g", "t")
    run([other], "it goes on behind what was committed", lambda: len(other.values) == RECORDS - len(read))
    assert sorted(read + other.values) == list(range(RECORDS))
    other.close()


def test_a_consumer_that_commits_by_itself_is_closed_at_once(alone: NodeProcess) -> None:
    create([alone], "t")
    produce([alone], "t", range(RECORDS))
    reader = Reader([alone], "g", "t", **{"enable.auto.commit": True})
    run([reader], "all is read", lambda: len(reader.values) == RECORDS)
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 5
    places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    found = Consumer({"bootstrap.servers": addresses([alone]), "group.id": "g"})
    assert total(found.committed(places, PATIENCE_S)) == RECORDS
    found.close()


def test_a_static_member_is_restarted_and_nobody_else_notices(alone: NodeProcess) -> None:
    nodes = [alone]
    create(nodes, "t")
    first = Reader(nodes, "g", "t", **{"group.instance.id": "one"})
    second = Reader(nodes, "g", "t", **{"group.instance.id": "two"})
    run([first, second], "both have two", lambda: share([first, second]))
    before = second.partitions()
    second.revoked.clear()
    first.close()
    first = Reader(nodes, "g", "t", **{"group.instance.id": "one"})
    run([first, second], "the first is back", lambda: share([first, second]))
    assert (second.partitions(), second.revoked) == (before, [])
    for reader in (first, second):
        reader.close()


def test_groups_are_listed_described_and_deleted(alone: NodeProcess) -> None:
    create([alone], "t")
    produce([alone], "t", range(RECORDS))
    reader = Reader([alone], "busy", "t", **{"client.id": "me"})
    run([reader], "all is read", lambda: len(reader.values) == RECORDS)
    reader.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": addresses([alone])})
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert [(group.group_id, group.state) for group in listed.valid] == [("busy", ConsumerGroupState.STABLE)]
    described = admin.describe_consumer_groups(["busy"])["busy"].result(PATIENCE_S)
    (member,) = described.members
    assert (described.partition_assignor, member.client_id, member.host) == ("range", "me", "/127.0.0.1")
    assert {place.partition for place in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["busy"])["busy"].result(PATIENCE_S)
    reader.close()
    admin.delete_consumer_groups(["busy"])["busy"].result(PATIENCE_S)
    assert admin.list_consumer_groups().result(PATIENCE_S).valid == []


def test_a_group_goes_on_when_the_node_that_coordinates_it_is_killed(nodes: list[NodeProcess]) -> None:
    create(nodes, "t")
    readers = [Reader(nodes, "g", "t") for _ in range(2)]
    run(readers, "both have two", lambda: share(readers))
    produce(nodes, "t", range(RECORDS))
    run(readers, "all is read", lambda: {*readers[0].values, *readers[1].values} == set(range(RECORDS)))
    run(readers, "all is committed", lambda: commits(readers) == RECORDS)
    killed = coordinator_of(nodes, "g")
    for reader in readers:
        reader.values.clear()
    killed.kill()
    left = [each for each in nodes if each is not killed]
    produce(left, "t", range(RECORDS, 2 * RECORDS))
    rest = set(range(RECORDS, 2 * RECORDS))
    run(readers, "the rest is read", lambda: rest <= {*readers[0].values, *readers[1].values})
    assert {*readers[0].values, *readers[1].values} == rest, "what was committed is not read again"
    run(readers, "the rest is committed", lambda: commits(readers) == 2 * RECORDS)
    killed.start().wait_ready()
    for reader in readers:
        reader.close()
    again = Reader(nodes, "g", "t")
    produce(nodes, "t", range(2 * RECORDS, 2 * RECORDS + PARTITIONS))
    run([again], "it goes on behind what was committed", lambda: len(again.values) >= PARTITIONS)
    assert sorted(again.values) == list(range(2 * RECORDS, 2 * RECORDS + PARTITIONS))
    again.close()


def test_a_coordinator_that_stood_still_takes_no_commit_when_it_goes_on(nodes: list[NodeProcess]) -> None:
    create(nodes, "t")
    options = {"session.timeout.ms": SESSION_MS, "socket.timeout.ms": 10_000}
    readers = [Reader(nodes, "g", "t", **options) for _ in range(2)]
    run(readers, "both have two", lambda: share(readers))
    produce(nodes, "t", range(RECORDS))
    run(readers, "all is read", lambda: {*readers[0].values, *readers[1].values} == set(range(RECORDS)))
    run(readers, "all is committed", lambda: commits(readers) == RECORDS)
    member, offset = readers[0].consumer.memberid(), RECORDS // PARTITIONS
    generation = wait_until("its generation is known", lambda: generation_of(nodes, "g", member, offset))
    sleeper = coordinator_of(nodes, "g")
    left = [each for each in nodes if each is not sleeper]
    # A group without members takes a commit from anybody: it is the coordinator alone that must refuse it.
    names = (f"lone-{number}" for number in range(100))
    lone = next(name for name in names if coordinator_of(nodes, name) is sleeper)
    wait_until("its first commit is taken", lambda: commit_alone(nodes, lone, 10))
    sleeper.stand_still()
    stopped_at = time.monotonic()
    late = KafkaConnection(sleeper.ports["kafka"])  # its requests are there when the node wakes up
    late.send_commit(lone, "t", 0, 1)
    late.send_commit("g", "t", 0, 1, member=member, generation=generation)
    late.send_question(lone, "t", 0)
    wait_until("another one coordinates", lambda: commit_alone(left, lone, 20))
    produce(left, "t", range(RECORDS, 2 * RECORDS))
    everything = set(range(2 * RECORDS))
    run(readers, "the rest is read", lambda: {*readers[0].values, *readers[1].values} == everything)
    run(readers, "the rest is committed", lambda: commits(readers) == 2 * RECORDS)
    run(readers, "a session is over", lambda: time.monotonic() - stopped_at > SESSION_MS / 1_000)
    sleeper.go_on()
    codes = [late.commit_code() for _ in range(2)]
    offset, code = late.told()
    late.close()
    assert codes[0] in NOT_TAKEN, codes
    assert codes[1] in {*NOT_TAKEN, KafkaError.ILLEGAL_GENERATION}, codes
    assert offset == 20 or code != 0, "what was committed while it slept is not missed"
    for each in nodes:
        assert [place["offset"] for place in walrus(each, "describe", lone)["positions"]] == [20]
        positions = walrus(each, "describe", "g")["positions"]
        assert [place["offset"] for place in positions] == [2 * RECORDS // PARTITIONS] * PARTITIONS
    for reader in readers:
        reader.values.clear()
    produce(nodes, "t", range(2 * RECORDS, 3 * RECORDS))
    rest = set(range(2 * RECORDS, 3 * RECORDS))
    run(readers, "what came last is read", lambda: rest <= {*readers[0].values, *readers[1].values})
    assert {*readers[0].values, *readers[1].values} == rest, "what was committed is not read again"
    run(readers, "what came last is committed", lambda: commits(readers) == 3 * RECORDS)
    for reader in readers:
        reader.close()


def test_a_commit_is_stored_as_a_whole_up_to_its_greatest_length(nodes: list[NodeProcess]) -> None:
    with Client(f"127.0.0.1:{nodes[0].ports['grpc']}") as client:
        client.create_topic("many", partitions=LONG_COMMIT + 40)

    def commit(count: int, offset: int) -> set[int]:
        places = [TopicPartition("many", number, offset, METADATA) for number in range(count)]
        consumer = Consumer({"bootstrap.servers": addresses(nodes), "group.id": "g"})
        try:
            return {place.offset for place in consumer.commit(offsets=places, asynchronous=False)}
        finally:
            consumer.close()

    assert commit(LONG_COMMIT, 1) == {1}
    with pytest.raises(KafkaException, match="INVALID_COMMIT_OFFSET_SIZE"):
        commit(LONG_COMMIT + 40, 2)
    for each in nodes:
        positions = [place["offset"] for place in walrus(each, "describe", "g")["positions"]]
        assert positions == [1] * LONG_COMMIT, "nothing of the one that was refused"


def test_a_group_goes_on_once_clients_are_told_where_its_coordinator_is(node: Make, tmp_path: Path) -> None:
    ports = [node().ports["kafka"] for _ in range(2)]
    first = node("--bootstrap", "--kafka-listener", f"outside=127.0.0.1:{ports[0]}").start()
    told = tmp_path / "told"  # where the second one is, for clients that come from outside
    outside = ("--kafka-listener", f"outside=127.0.0.1:{ports[1]},advertise=file", "--advertised-file", str(told))
    second = node("--join", first.raft_address, *outside).start()
    nodes = [first, second]
    for each in nodes:
        each.wait_ready()
    create(nodes, "t")
    connection = KafkaConnection(ports[0])
    unknown = (-1, KafkaError.COORDINATOR_NOT_AVAILABLE)  # clients ask again

    def of_second() -> str | None:
        names = (f"g{number}" for number in range(100))
        hidden = (name for name in names if coordinator_of(nodes, name) is second)
        return next((name for name in hidden if connection.coordinator(name) == unknown), None)

    group = wait_until("the second one coordinates a group", of_second)
    reader = Reader(nodes, group, "t", **{"bootstrap.servers": f"127.0.0.1:{ports[0]}"})
    reader.poll()
    told.write_text(f"kafka/outside=127.0.0.1:{ports[1]}")
    run([reader], "it has all partitions", lambda: len(reader.partitions()) == PARTITIONS)
    assert connection.coordinator(group)[1] == KafkaError.NO_ERROR
    connection.close()
    reader.close()


def test_a_shared_cursor_is_no_group_of_kafka(alone: NodeProcess) -> None:
    assert [say(alone, f"PUT orders {word}") for word in ("one", "two")] == ["OK", "OK"]
    assert [say(alone, "GET orders"), say(alone, "COMMIT")] == ["OK one", "OK"]
    admin = AdminClient({"bootstrap.servers": addresses([alone])})
    assert admin.list_consumer_groups().result(PATIENCE_S).valid == []
    places = ConsumerGroupTopicPartitions("orders", [TopicPartition("orders", 0, 0)])
    (moved,) = admin.alter_consumer_group_offsets([places]).values()
    assert [place.error for place in moved.result(PATIENCE_S).topic_partitions] == [None]
    kinds = {group["kind"]: group["name"] for group in walrus(alone, "list")}
    assert kinds == {"consumer group": "orders", "shared cursor": "orders"}, "a group of that name is another thing"
    assert [place["offset"] for place in walrus(alone, "describe", "--cursor", "orders")["positions"]] == [1]
    assert say(alone, "GET orders") == "OK two"


def coordinator_of(nodes: list[NodeProcess], group: str) -> NodeProcess:
    """The node that coordinates a group; it is made out while nobody does."""
    connection = KafkaConnection(nodes[0].ports["kafka"])
    port = wait_until("somebody coordinates the group", lambda: max(connection.coordinator(group)[0], 0))
    connection.close()
    (found,) = [each for each in nodes if each.ports["kafka"] == port]
    return found


def generation_of(nodes: list[NodeProcess], group: str, member: str, offset: int) -> int | None:
    """The one generation in which a commit of a member is taken: it commits what is committed already.

    None where the coordinator has just moved.
    """
    connection = KafkaConnection(coordinator_of(nodes, group).ports["kafka"])
    generation, code = 0, KafkaError.ILLEGAL_GENERATION
    while code == KafkaError.ILLEGAL_GENERATION:
        generation += 1
        connection.send_commit(group, "t", 0, offset, member=member, generation=generation)
        code = connection.commit_code()
    connection.close()
    return generation if code == KafkaError.NO_ERROR else None


def commit_alone(nodes: list[NodeProcess], group: str, offset: int) -> bool:
    """Commits as somebody who is no member, if somebody takes it now; says whether."""
    consumer = Consumer({"bootstrap.servers": addresses(nodes), "group.id": group, "socket.timeout.ms": 10_000})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def commits(readers: list[Reader]) -> int:
    """Has members commit what they have read, as far as they can now; answers what is committed of all partitions."""
    places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    for reader in readers:
        with suppress(KafkaException):  # it is between two generations, or has read nothing in this one
            reader.consumer.commit(asynchronous=False)
    with suppress(KafkaException):
        return total(readers[0].consumer.committed(places, PATIENCE_S))
    return 0


def walrus(node: NodeProcess, *arguments: str) -> Any:
    """What the program prints as JSON, or its exit code and what it says."""
    at = ("--bootstrap", f"127.0.0.1:{node.ports['grpc']}", "--output", "json")
    command = [sys.executable, "-m", "walrus_client.cli", "group", *arguments, *at]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else (done.returncode, done.stderr)


def test_groups_and_cursors_are_shown_moved_and_forgotten_by_any_node(nodes: list[NodeProcess]) -> None:
    create(nodes, "t")
    produce(nodes, "t", range(RECORDS))
    for each in nodes:
        assert walrus(each, "list") == [], "nothing is made by looking"
    reader = Reader(nodes, "g", "t", **{"client.id": "me"})
    run([reader], "all is read", lambda: len(reader.values) == RECORDS)
    reader.consumer.commit(asynchronous=False)
    produce(nodes, "t", range(RECORDS, RECORDS + 8))
    for each in nodes:
        described = walrus(each, "describe", "g")
        assert (described["group"]["state"], [member["client_id"] for member in described["members"]]) == (
            "stable",
            ["me"],
        )
        positions = [(place["offset"], place["end"], place["lag"]) for place in described["positions"]]
        assert positions == [(RECORDS // PARTITIONS, RECORDS // PARTITIONS + 2, 2)] * PARTITIONS
        assert {place["member"] for place in described["positions"]} == {described["members"][0]["id"]}
        code, why = walrus(each, "reset", "g", "--topic", "t", "--to", "earliest")
        assert (code, "has members" in why) == (1, True)
    reader.close()
    assert walrus(nodes[0], "reset", "g", "--topic", "t", "--to", "-1", "-p", "1")["offsets"] == {"1": 101}
    assert [place["offset"] for place in walrus(nodes[1], "describe", "g")["positions"]] == [100, 101, 100, 100]
    assert say(nodes[0], "GET t").startswith("OK ")
    assert say(nodes[0], "COMMIT") == "OK"
    listed = [(group["name"], group["kind"]) for group in walrus(nodes[2], "list")]
    assert listed == [("g", "consumer group"), ("t", "shared cursor")]
    (cursor,) = [place for place in walrus(nodes[1], "describe", "--cursor", "t")["positions"] if place["offset"]]
    assert (cursor["offset"], cursor["lag"]) == (1, 101)
    assert walrus(nodes[1], "delete", "g", "--yes") == {"deleted": "g"}
    for each in nodes:
        assert walrus(each, "describe", "g")[0] == 1
    assert walrus(nodes[0], "delete", "g", "--yes")[0] == 1
