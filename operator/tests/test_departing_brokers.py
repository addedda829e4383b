"""Brokers of a simulated Kubernetes go and come, each of them a real node, and what was stored can be read."""

import shutil
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from test_replacing import REPLACE
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
    "finalize_level",
)
LOOKS = ("config", "caught_up", "can_stop", "drain")


class RealBrokers:
    """A real node for each pod, by ordinals; what pods are ready is simulated."""

    def __init__(self, simulated, cluster):
        self.simulated = simulated
        self.nodes = [AdminBrokers(port=node.ports.admin) for node in cluster.nodes]
        self.secret = cluster.secret_file.read_bytes() if cluster.secret_file is not None else None
        self._pods = {node.name: f"orders-general-{ordinal}" for ordinal, node in enumerate(cluster.nodes)}

    async def look(self, host):
        """What the node tells, which knows the others by the names of their pods here."""
        told = await self._node(host).look("127.0.0.1")
        return replace(told, members=tuple(replace(one, name=self._pods[one.name]) for one in told.members))

    def _node(self, host):
        return self.nodes[int(host.rpartition("-")[2])]

    def __getattr__(self, name):
        if name not in (*CHANGES, *LOOKS):
            return getattr(self.simulated, name)

        async def call(host, *arguments):
            known = (*arguments[:-1], self.secret) if name in CHANGES else arguments
            return await getattr(self._node(host), name)("127.0.0.1", *known)

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
        assert time.monotonic() < deadline, (status(kube).get("plan"), kube.pods().keys())
        Operator(kube).once()
        kube.step()


class Records:
    """Records of a topic with four partitions, and those that were sent."""

    def __init__(self, client):
        self._client = client
        self._sent = []
        client.create_topic("orders", partitions=4)

    def store(self):
        for partition in range(4):
            self._client.append("orders", [b"%d" % len(self._sent)], partition=partition)
            self._sent.append((partition, len(self._sent)))

    def check(self):
        found = [
            (partition, int(record.value))
            for partition in range(4)
            for record in self._client.read("orders", partition)
        ]
        assert sorted(found) == sorted(self._sent)


@pytest.fixture
def four(tmp_path):
    """Four real nodes, the Kubernetes that has them as pods, and records that are stored on them."""
    cluster = start_cluster(tmp_path, nodes=4)
    try:
        with kubernetes(cluster) as kube, Client(cluster.bootstrap) as client:
            yield cluster, kube, Records(client)
    finally:
        cluster.stop()


def wipe(cluster, ordinal):
    node = cluster.nodes[ordinal]
    cluster.kill(node.name)
    shutil.rmtree(node.data_dir)
    return node.name


def test_a_broker_goes_and_another_one_comes_while_records_are_stored_and_all_are_there(four):
    cluster, kube, records = four

    def are(number):
        records.store()
        told = Operator(kube).look()
        return len(told.members()) == len(told.pods) == number and not told.departures()

    settled(kube, lambda: are(4))
    kube.put("orders", SMALLEST)
    settled(kube, lambda: len(kube.pods()) == 3)
    gone = wipe(cluster, 3)
    kube.remove(CLAIM.name, "data-orders-general-3")
    settled(kube, lambda: are(3))
    kube.put("orders", FOUR)
    settled(kube, lambda: len(kube.pods()) == 4)
    cluster.restart(gone)
    settled(kube, lambda: are(4))
    records.check()


@pytest.mark.parametrize("by", ["hand", "itself"])
def test_a_broker_whose_machine_is_gone_comes_back_on_another_disk_and_all_records_are_there(four, by):
    cluster, kube, records = four
    records.store()
    lost = Operator(kube).look().brokers["orders-general-1"].disk
    settled(kube, lambda: Operator(kube).look().disks()["orders-general-1"].disk == lost)
    name = wipe(cluster, 1)
    kube.nodes.forget(kube.pods()["orders-general-1"]["spec"]["nodeName"])
    if by == "hand":
        kube.put("orders", FOUR, annotations={REPLACE: lost})
    else:
        kube.put("orders", changed(FOUR, lostAfter="10s"))

    def is_out():
        records.store()
        return lost not in {member.disk for member in Operator(kube).look().members()}

    settled(kube, is_out)
    settled(kube, lambda: "podIP" in kube.pods().get("orders-general-1", {"status": {}})["status"])
    cluster.restart(name)
    settled(kube, lambda: len([one for one in Operator(kube).look().members() if one.alive]) == 4)
    settled(kube, lambda: condition(kube, "Replicated")["status"] == "True")
    records.check()
