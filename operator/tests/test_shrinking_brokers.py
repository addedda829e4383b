"""Brokers of a simulated Kubernetes go and come, each of them a real node, and what was stored can be read."""

import shutil
import time
from contextlib import contextmanager

import pytest
from driving import Operator, status
from examples import SMALLEST, with_pool
from simkube import SimKube
from test_shrinking import converge
from walrus_client import Client
from walrus_operator.objects import CLAIM, CLUSTER, CONFIG_MAP, Ref
from walrus_operator.observe.admin import AdminBrokers

pytest.importorskip("walrus_core")
pytest.importorskip("walrus_node")

from walrus_client.dev import start_cluster

FOUR = with_pool(SMALLEST, replicas=4)
PATIENCE_S = 60
CHANGES = (
    "set_config",
    "set_replication",
    "set_log_level",
    "transfer_leadership",
    "start_drain",
    "cancel_drain",
    "remove_member",
)
LOOKS = ("look", "config", "caught_up", "can_stop", "drain")


class RealBrokers:
    """A real node for each pod, by ordinals; what pods are ready is simulated."""

    def __init__(self, simulated, cluster):
        self.simulated = simulated
        self.nodes = [AdminBrokers(port=node.ports.admin) for node in cluster.nodes]
        self.secret = cluster.secret_file.read_bytes() if cluster.secret_file is not None else None

    def __getattr__(self, name):
        if name not in (*CHANGES, *LOOKS):
            return getattr(self.simulated, name)

        async def call(host, *arguments):
            known = (*arguments[:-1], self.secret) if name in CHANGES else arguments
            return await getattr(self.nodes[int(host.rpartition("-")[2])], name)("127.0.0.1", *known)

        return call


@contextmanager
def kubernetes(cluster):
    """A simulated one with four brokers, which knows that its cluster is the real one."""
    kube = SimKube()
    kube.put("orders", FOUR)
    converge(kube)
    kube.brokers = RealBrokers(kube.brokers, cluster)
    told = Operator(kube).look().brokers["orders-general-0"]
    kube.objects[Ref(CONFIG_MAP.name, "shop", "orders-accepted")]["data"]["clusterId"] = told.cluster_id
    kube.objects[Ref(CLUSTER.name, "shop", "orders")]["status"]["clusterId"] = told.cluster_id
    yield kube


def settled(kube, reached):
    """Passes by operators without memory, until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, status(kube)
        Operator(kube).once()
        kube.step()


def test_a_broker_goes_and_another_one_comes_while_records_are_stored_and_all_are_there(tmp_path):
    cluster = start_cluster(tmp_path, nodes=4)
    try:
        with kubernetes(cluster) as kube, Client(cluster.bootstrap) as client:
            client.create_topic("orders", partitions=4)
            sent = []

            def store():
                for partition in range(4):
                    client.append("orders", [b"%d" % len(sent)], partition=partition)
                    sent.append((partition, len(sent)))

            def are(number):
                store()
                told = Operator(kube).look()
                return len(told.members()) == len(told.pods) == number and not told.departures()

            settled(kube, lambda: are(4))
            kube.put("orders", SMALLEST)
            settled(kube, lambda: len(kube.pods()) == 3)
            gone = cluster.nodes[3]
            cluster.kill(gone.name)
            shutil.rmtree(gone.data_dir)
            kube.remove(CLAIM.name, "data-orders-general-3")
            settled(kube, lambda: are(3))
            kube.put("orders", FOUR)
            settled(kube, lambda: len(kube.pods()) == 4)
            cluster.restart(gone.name)
            settled(kube, lambda: are(4))
            found = [
                (partition, int(record.value)) for partition in range(4) for record in client.read("orders", partition)
            ]
            assert sorted(found) == sorted(sent)
    finally:
        cluster.stop()
