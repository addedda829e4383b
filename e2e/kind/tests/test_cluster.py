"""A WalrusCluster comes up, takes records from inside and outside Kubernetes, and follows its spec."""

import json

import pytest
from harness.kube.cluster import Cluster, machine_of
from harness.kube.figures import timed
from harness.kube.kubectl import CommandError, NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.load import producing
from harness.records import check_partition
from harness.waiting import wait_until
from walrus_client import Client
from walrus_client.text import TextClient


def test_the_example_of_the_docs_becomes_ready(new_namespace: NewNamespace) -> None:
    cluster = Cluster(new_namespace("timed"), "orders")
    with timed("apply to Ready, three brokers"):
        cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
        cluster.wait_ready()
    assert len(cluster.pods()) == 3
    assert len({machine_of(pod) for pod in cluster.pods()}) > 1, "brokers are spread"


def test_kubectl_get_shows_what_matters(orders: Cluster) -> None:
    header, row = orders.kubectl("get", "wc", "orders").splitlines()
    columns = ["NAME", "BROKERS", "READY", "LEADER", "VERSION", "BACKEND", "REPLICATED", "SPEC", "PHASE", "AGE"]
    assert header.split() == columns
    shown = dict(zip(columns, row.split(), strict=True))
    assert (shown["REPLICATED"], shown["SPEC"]) == ("True", "True")
    assert (shown["BROKERS"], shown["READY"], shown["BACKEND"]) == ("3", "3", "mmap")
    assert shown["LEADER"] in {pod["metadata"]["name"] for pod in orders.pods()}


def test_records_of_a_pod_are_stored_once_and_in_order(orders: Cluster, workbench: Workbench) -> None:
    with workbench.producing(orders.bootstrap, "inside") as load:
        load.wait_for_more(5_000)
    assert workbench.check(orders.bootstrap, "inside", load.acked) == sum(load.acked.values())


def test_put_and_get_work_from_a_pod(orders: Cluster, workbench: Workbench) -> None:
    address = ("--addr", orders.text_address)
    assert workbench.walrus("register", "greetings", *address).strip() == "OK"
    assert workbench.walrus("put", "greetings", "hello from a pod", *address).strip() == "OK"
    assert workbench.walrus("get", "greetings", *address).strip() == "hello from a pod"


def test_records_through_a_port_forward_are_stored_once_and_in_order(orders: Cluster) -> None:
    with orders.kubectl.forwarded("service/orders", 9090) as address:
        with Client(address) as client:
            client.create_topic("outside")
        with producing(address, "outside", producers=4) as load:
            load.wait_for_more(5_000)
        with Client(address) as client:
            assert not check_partition(((r.offset, r.value) for r in client.read("outside")), acked=load.acked)


def test_put_and_get_work_through_a_port_forward(orders: Cluster) -> None:
    with orders.kubectl.forwarded("service/orders", 8080) as address, TextClient(address) as client:
        assert client.request("REGISTER outside-text") == "OK"
        assert client.request("PUT outside-text hello from outside") == "OK"
        assert client.request("GET outside-text") == "OK hello from outside"


def test_a_broker_is_nobody_on_its_machine(orders: Cluster) -> None:
    pod = orders.pods()[0]["metadata"]["name"]
    assert orders.kubectl.execute(pod, "id", "-u").strip() == "10001"
    with pytest.raises(CommandError, match="Read-only file system"):
        orders.kubectl.execute(pod, "touch", "/opt/walrus/mine")
    with pytest.raises(CommandError, match="No such file"):
        orders.kubectl.execute(pod, "ls", "/var/run/secrets/kubernetes.io")


def test_a_change_of_max_entries_is_seen_in_segments_without_a_restart(orders: Cluster, workbench: Workbench) -> None:
    def segments() -> int:
        said = workbench.walrus("segments", "rolling", "--bootstrap", orders.bootstrap, "--output", "json")
        return sum(len(partition["segments"]) for partition in json.loads(said))

    before = {pod["metadata"]["uid"] for pod in orders.pods()}
    with workbench.producing(orders.bootstrap, "rolling", producers=2) as load:
        load.wait_for_more(1_500)
        assert segments() == 1
        orders.kubectl.patch("wc", "orders", {"spec": {"segments": {"maxEntries": 1_000, "checkInterval": "1s"}}})
        wait_until("four segments of the topic", lambda: segments() >= 4, timeout_s=120, every_s=1)
    workbench.check(orders.bootstrap, "rolling", load.acked)
    assert {pod["metadata"]["uid"] for pod in orders.pods()} == before
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in orders.pods())
    orders.wait_ready()


def test_a_single_broker_becomes_three_with_three_copies_and_as_few_as_hold_them_again(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("growing"), "dev")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster-development.yaml"))
    cluster.wait_ready()
    first = cluster.pods()[0]["metadata"]["uid"]
    with workbench.producing(cluster.bootstrap, "growing", producers=1) as load:
        load.wait_for_more(500)
        cluster.set_replicas(3)
        cluster.wait_ready()
        load.wait_for_more(500)
        cluster.kubectl.patch("wc", cluster.name, {"spec": {"replication": {"factor": 3}}})
        cluster.wait_replicated()
        load.wait_for_more(500)
    workbench.check(cluster.bootstrap, "growing", load.acked)
    status = cluster.resource()["status"]
    assert [broker["state"] for broker in status["brokers"]] == ["Serving"] * 3
    assert (status["replication"]["factor"], status["replication"]["writeQuorum"]) == (3, 2)
    assert first in {pod["metadata"]["uid"] for pod in cluster.pods()}, "the first broker was not touched"

    (pool,) = cluster.resource()["spec"]["pools"]
    least = {"replication": {"factor": 1}, "pools": [pool | {"replicas": 1}]}
    cluster.kubectl.patch("wc", cluster.name, {"spec": least})
    cluster.wait_for("the refusal to shrink", lambda _: cluster.condition("SpecAccepted").get("status") == "False")
    refusal = cluster.condition("SpecAccepted")
    assert refusal["reason"] == "ShrinkRefused"
    assert "set replicas of pool general to 3" in refusal["message"]
    assert len(cluster.pods()) == 3

    # What was acknowledged by two brokers stays on two, whatever later records need.
    cluster.set_replicas(3)
    cluster.wait_for("two copies", lambda found: found["status"]["replication"].get("copiesNeeded") == 2)
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"deletionPolicy": "Retain"}})
    cluster.set_replicas(2)
    cluster.wait_ready()
    assert len(cluster.pods()) == len(cluster.members()) == 2
    workbench.check(cluster.bootstrap, "growing", load.acked)

    # The claim is left, and bears a disk that is out of the cluster.
    cluster.set_replicas(3)
    cluster.wait_for(
        "the claim in the way", lambda found: found["status"].get("plan", {}).get("blockedBy") == "RemovedDisk"
    )
    (left,) = (claim for claim in cluster.claims() if claim["metadata"]["name"].endswith("-2"))
    assert left["metadata"]["name"] in cluster.resource()["status"]["plan"]["detail"]
    cluster.kubectl("delete", "persistentvolumeclaim", left["metadata"]["name"])
    cluster.wait_ready()
    assert len(cluster.members()) == 3
