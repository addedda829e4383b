"""Machines and brokers are emptied for service, one after the other, and writes go on."""

import json
import time

import pytest
from harness.kube.cluster import Cluster, machine_of
from harness.kube.figures import note, note_pauses, timed
from harness.kube.kubectl import NewNamespace
from harness.kube.machines import MACHINES
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

PARTITIONS = 4
PACE = 8 << 20
FILLED_MIB = 384


@pytest.mark.usefixtures("quiet")
def test_each_node_is_drained_in_turn_under_load(new_namespace: NewNamespace, workbench: Workbench) -> None:
    cluster = Cluster(new_namespace("drained"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "drained", partitions=PARTITIONS) as load:
        for machine in sorted({machine_of(pod) for pod in cluster.pods()}):
            cluster.wait_ready()
            cluster.wait_replicated()
            try:
                with timed(f"kubectl drain {machine}"):
                    MACHINES("drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
                load.wait_for_more(2_000)
            finally:
                MACHINES("uncordon", machine)
        cluster.wait_ready()
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "drained", load.acked, partitions=PARTITIONS)
    note_pauses("kubectl drain of each node", load.pauses_s, load.machine)


@pytest.fixture
def filled(new_namespace: NewNamespace, workbench: Workbench) -> Cluster:
    """Two brokers that share a topic of one copy, in sealed segments of 8 MiB."""
    cluster = Cluster(new_namespace("emptied"), "orders")
    spec = {
        "version": "0.1.0",
        "replication": {"factor": 1},
        "segments": {"maxBytes": "8Mi", "checkInterval": "1s"},
        "config": {"dynamic": {"copies.bytes_per_second": PACE}},
        "pools": [{"name": "general", "replicas": 2, "storage": {"claim": {"size": "1Gi"}}}],
    }
    cluster.kubectl.apply(
        {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": "orders"}, "spec": spec}
    )
    cluster.wait_ready()
    workbench.fill(cluster.bootstrap, "filled", FILLED_MIB, partitions=PARTITIONS)
    return cluster


def test_a_broker_is_emptied_at_the_pace_that_copies_may_take(filled: Cluster, workbench: Workbench) -> None:
    """By an order, `kubectl walrus drain`: the broker stays a member without any record."""
    row = filled.resource()["status"]["brokers"][0]
    held = bytes_on(filled, workbench, row["pod"])
    assert held > FILLED_MIB << 18, "a quarter of the topic and more"
    began = time.monotonic()
    filled.kubectl("annotate", "wc", filled.name, f"walrus.dev/drain={row['uuid']}")
    wait_until("an empty broker", lambda: bytes_on(filled, workbench, row["pod"]) == 0, timeout_s=240, every_s=0.2)
    took = time.monotonic() - began
    wait_until(
        "the Event that the broker is empty",
        lambda: any(event["reason"] == "Drained" for event in filled.kubectl.list("events")),
        every_s=0.5,
    )
    note("drain at 8 MiB/s: share of the pace that is not used", 1 - held / took / PACE, "", limit=0.2)
    filled.kubectl("annotate", "wc", filled.name, "walrus.dev/drain-")
    filled.wait_ready()


def bytes_on(cluster: Cluster, workbench: Workbench, pod: str) -> int:
    """Bytes of the topic's segments that a broker has a copy of."""
    told = workbench.walrus("segments", "filled", "--bootstrap", cluster.bootstrap, "--output", "json")
    return sum(
        segment["bytes"]
        for partition in json.loads(told)
        for segment in partition["segments"]
        if any(replica["grpc_address"].startswith(f"{pod}.") for replica in segment["replicas"])
    )
