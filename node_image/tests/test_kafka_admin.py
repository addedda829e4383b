"""What librdkafka's admin client asks of a cluster, against real nodes."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from node_process import NodeProcess
from waiting import wait_until

PATIENCE_S = 30

Make = Callable[..., NodeProcess]


@pytest.fixture
def admin(node: Make) -> AdminClient:
    """An admin client of three nodes."""
    first = node("--bootstrap", "--replication-factor", "3").start()
    nodes = [first, *(node("--join", first.raft_address).start() for _ in range(2))]
    for each in nodes:
        each.wait_ready()
    client = AdminClient({"bootstrap.servers": ",".join(f"127.0.0.1:{each.ports['kafka']}" for each in nodes)})
    wait_until("the nodes know each other", lambda: len(client.list_topics(timeout=PATIENCE_S).brokers) == len(nodes))
    return client


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(PATIENCE_S) for future in futures.values()]


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (found,) = done(admin.describe_configs([ConfigResource(kind, name)]))
    entries: dict[str, ConfigEntry] = found
    return entries


def test_topics_are_made_described_altered_grown_and_deleted(admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("t", 3, 3, config={"retention.ms": "100000"}), NewTopic("u")]))
    (again,) = admin.create_topics([NewTopic("t", 3)]).values()
    with pytest.raises(KafkaException) as refused:
        again.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    (described,) = done(admin.describe_topics(TopicCollection(["t"])))
    assert [(len(partition.replicas), len(partition.isr)) for partition in described.partitions] == [(3, 3)] * 3
    entries = configs(admin, ResourceType.TOPIC, "t")
    assert (entries["retention.ms"].value, entries["cleanup.policy"].value) == ("100000", "delete")
    change = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    done(admin.incremental_alter_configs([change]))
    entries = configs(admin, ResourceType.TOPIC, "t")
    assert (entries["retention.ms"].value, entries["cleanup.policy"].value) == ("-1", "compact,delete")
    done(admin.create_partitions([NewPartitions("u", 5)]))
    assert len(admin.list_topics("u", PATIENCE_S).topics["u"].partitions) == 5
    done(admin.delete_topics(["t", "u"]))
    assert list(admin.list_topics(timeout=PATIENCE_S).topics) == []


def test_whoever_says_which_nodes_have_copies_is_told_that_the_cluster_decides(admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("t", 1)]))
    for change in (
        admin.create_topics([NewTopic("u", 1, replica_assignment=[[1, 2, 3]])]),
        admin.create_partitions([NewPartitions("t", 2, replica_assignment=[[1, 2, 3]])]),
    ):
        with pytest.raises(KafkaException, match="the cluster places copies itself") as refused:
            done(change)
        assert refused.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
    found = admin.list_topics(timeout=PATIENCE_S).topics
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"t": 1}


def test_records_are_deleted_and_offsets_listed(admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("t", 1, 3)]))
    brokers = ",".join(f"{each.host}:{each.port}" for each in admin.list_topics(timeout=PATIENCE_S).brokers.values())
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(10):
        producer.produce("t", value=str(number))
    assert producer.flush(PATIENCE_S) == 0
    done(admin.delete_records([TopicPartition("t", 0, 4)]))
    place = TopicPartition("t", 0)
    found = [done(admin.list_offsets({place: spec}))[0].offset for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    assert found == [4, 10]


def test_the_cluster_is_described_with_its_brokers_and_their_settings(admin: AdminClient) -> None:
    wait_until("each node knows all three", lambda: len(admin.describe_cluster().result(PATIENCE_S).nodes) == 3)
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert cluster.controller.id in {each.id for each in cluster.nodes}
    for broker in cluster.nodes:
        entries = configs(admin, ResourceType.BROKER, str(broker.id))
        assert (entries["default.replication.factor"].value, entries["num.partitions"].value) == ("3", "1")
    (refused,) = admin.incremental_alter_configs(
        [
            ConfigResource(
                ResourceType.TOPIC,
                "no",
                incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
            )
        ]
    ).values()
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        refused.result(PATIENCE_S)
