"""Pools on io_uring: with the profile that the chart ships, and with one that forbids it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness.kube.cluster import Cluster, put_on_machine
from harness.kube.kubectl import Kubectl, NewNamespace
from harness.kube.repository import CHARTS
from harness.kube.workbench import Workbench

ON_NODES = "/var/lib/kubelet/seccomp/walrus/io-uring.json"
SHIPPED = (CHARTS / "walrus-operator/seccomp/io-uring.json").read_text()
SPEC: dict[str, Any] = {
    "version": "0.1.0",
    "replication": {"factor": 1},
    "pools": [
        {
            "name": "fast",
            "replicas": 1,
            "backend": "io_uring",
            "storage": {"local": {"size": "1Gi", "storageClassName": "standard"}},
        }
    ],
}


def without_io_uring() -> str:
    profile = json.loads(SHIPPED)
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if not name.startswith("io_uring_")]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    return json.dumps(profile)


def put_profile(text: str) -> None:
    for machine in Kubectl("default").list("nodes", "!node-role.kubernetes.io/control-plane"):
        put_on_machine(machine["metadata"]["name"], ON_NODES, text)


@pytest.fixture(scope="module")
def ring(new_namespace: NewNamespace, operator) -> Iterator[Cluster]:
    put_profile(SHIPPED)
    cluster = Cluster(new_namespace("ring"), "ring")
    cluster.kubectl.apply(
        {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": "ring"}, "spec": SPEC}
    )
    cluster.wait_ready()
    yield cluster
    put_profile(SHIPPED)


def test_a_pool_uses_io_uring_and_its_pods_stay_restricted(ring: Cluster, workbench: Workbench) -> None:
    resource = ring.resource()
    assert resource["status"]["backend"] == "io_uring", resource["status"]["brokers"]
    assert ring.condition("BackendAsRequested")["status"] == "True"
    with workbench.producing(ring.bootstrap, "rides", producers=2) as load:
        load.wait_for_more(1_000)
    workbench.check(ring.bootstrap, "rides", load.acked)


def test_where_the_profile_forbids_it_the_broker_does_without_and_says_so(ring: Cluster, workbench: Workbench) -> None:
    with workbench.producing(ring.bootstrap, "denied", producers=2) as load:
        load.wait_for_more(500)
        put_profile(without_io_uring())
        (victim,) = ring.pods()
        ring.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
        ring.wait_pod_replaced(victim)
        load.wait_for_more(500)
    workbench.check(ring.bootstrap, "denied", load.acked)
    ring.wait_ready()
    ring.wait_for("the fallback", lambda _: ring.condition("BackendAsRequested").get("status") == "False")
    told = ring.condition("BackendAsRequested")
    assert told["reason"] == "FellBack"
    assert "io_uring: " in told["message"], told["message"]
    (broker,) = ring.resource()["status"]["brokers"]
    assert broker["backend"] in ("direct", "mmap")
    assert (broker["restarts"], broker["state"]) == (0, "Serving")
