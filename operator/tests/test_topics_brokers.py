"""Topics that a simulated Kubernetes asks for, made, changed and deleted by real brokers."""

from contextlib import contextmanager
from copy import deepcopy

import pytest
from driving import Operator, settle_topics, topic_condition, topic_status
from test_topics import BILLING, DELETE, started
from walrus_client import Client
from walrus_operator.observe.admin import AdminBrokers

pytest.importorskip("walrus_core")
pytest.importorskip("walrus_node")

from walrus_client.dev import DevCluster, start_cluster

CALLS = ("compare_topics", "make_topic", "set_topic_config", "set_topic_partitions", "remove_topic")


class RealTopics:
    """The brokers of a simulated cluster, whose topics are those of a real one: a node for each pod."""

    def __init__(self, simulated, cluster: DevCluster):
        self.simulated = simulated
        self.nodes = [AdminBrokers(port=node.ports.admin) for node in cluster.nodes]
        self.secret = cluster.secret_file.read_bytes() if cluster.secret_file is not None else None

    def __getattr__(self, name):
        if name not in CALLS:
            return getattr(self.simulated, name)

        async def call(host, *arguments):
            node = self.nodes[int(host.rpartition("-")[2])]
            known = arguments if name == "compare_topics" else (*arguments[:-1], self.secret)
            return await getattr(node, name)("127.0.0.1", *known)

        return call


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = start_cluster(tmp_path_factory.mktemp("cluster"), nodes=3)
    yield made
    made.stop()


@contextmanager
def kubernetes(cluster):
    """A simulated one with a cluster of three brokers, each of which is a real node where topics are concerned."""
    kube = started()
    kube.brokers = RealTopics(deepcopy(kube.brokers), cluster)
    kube.brokers.simulated.kube = kube
    yield kube


def test_a_topic_is_made_changed_put_right_and_deleted(cluster):
    with kubernetes(cluster) as kube, Client(cluster.bootstrap) as client:

        def seen():
            return {topic.name: topic.partitions for topic in client.topics()}

        def own():
            return {one.name: one.value for one in client.describe_topic("billing").settings if one.source == "topic"}

        kube.put_topic("billing", DELETE)
        Operator(kube).topics_once()
        assert topic_status(kube)["phase"] == "Ready", topic_status(kube)
        assert seen() == {"billing": 3}
        assert own() == {"retention.ms": "3600000", "cleanup.policy": "delete"}
        told = topic_status(kube)
        assert sum(row["partitions"] for row in told["leaders"]) == 3
        assert (told["replicationFactor"], told["size"]) == (3, "0")
        assert {row["name"]: row["source"] for row in told["settings"]}["min.insync.replicas"] == "cluster"
        writes = kube.writes
        assert Operator(kube).topics_once().acts == ()
        assert kube.writes == writes

        kube.put_topic("billing", {**DELETE, "partitions": 5, "configs": {"segment.ms": 600_000}})
        settle_topics(kube)
        assert seen() == {"billing": 5}
        assert own() == {"retention.ms": "3600000", "segment.ms": "600000"}

        client.alter_topic("billing", {"retention.ms": 7, "segment.bytes": 1 << 20})
        settle_topics(kube)
        assert own() == {"retention.ms": "3600000", "segment.ms": "600000"}

        kube.remove("WalrusTopic", "billing")
        settle_topics(kube)
        assert seen() == {}


def test_what_the_brokers_refuse_is_told_in_their_words(cluster):
    with kubernetes(cluster) as kube:
        kube.put_topic("billing", {**BILLING, "configs": {"retention.mss": 1}})
        kube.put_topic("second", {"cluster": "orders", "org": "nobody"})
        kube.put_topic("third", {"cluster": "orders", "name": "not.there", "managementPolicy": "ObserveOnly"})
        settle_topics(kube)
        assert topic_condition(kube, "Ready")["message"].endswith("the nearest name is retention.ms")
        assert 'there is no organisation "nobody"' in topic_condition(kube, "Ready", "second")["message"]
        assert topic_condition(kube, "Ready", "third")["reason"] == "Missing"


def test_many_topics_are_made_in_one_pass_while_a_broker_is_away(cluster):
    with kubernetes(cluster) as kube, Client(cluster.running_bootstrap) as client:
        away = cluster.nodes[0]
        cluster.kill(away.name)
        try:
            for number in range(50):
                kube.put_topic(
                    f"topic-{number}", {"cluster": "orders", "replicationFactor": 1, "deletionPolicy": "Delete"}
                )
            settle_topics(kube)
            assert {topic_status(kube, f"topic-{number}")["phase"] for number in range(50)} == {"Ready"}
            assert len(client.topics()) == 50
            for number in range(50):
                kube.remove("WalrusTopic", f"topic-{number}")
            settle_topics(kube)
            assert client.topics() == []
        finally:
            cluster.restart(away.name)
