"""What must not happen: a drain and a roll take two, disks of another cluster, a refused spec is half done."""

import json

import pytest
from harness.kube.cluster import Cluster, is_pod_ready
from harness.kube.kubectl import CommandError, NewNamespace, Object
from harness.kube.workbench import Workbench
from harness.waiting import wait_until


def spec_of(pool: str, *, replicas: int = 3) -> Object:
    text = {"version": "0.1.0", "pools": [{"name": pool, "replicas": replicas, "storage": {"claim": {"size": "1Gi"}}}]}
    return text if replicas > 1 else text | {"replication": {"factor": 1}}


def named(name: str, spec: Object) -> Object:
    return {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": name}, "spec": spec}


def test_a_refused_spec_changes_nothing_and_a_refused_size_goes_back(orders: Cluster) -> None:
    orders.wait_ready()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.pods()}
    spec = orders.resource()["spec"]
    (pool,) = spec["pools"]
    larger = pool | {"storage": {"claim": {"size": "20Gi"}}}
    orders.kubectl.patch("wc", "orders", {"spec": {"pools": [larger], "replication": {"factor": 2}}})
    orders.wait_for(
        "SpecAccepted is false", lambda _: orders.condition("SpecAccepted").get("reason") == "ResizeRefused"
    )
    status = orders.resource()["status"]
    assert status["replication"]["factor"] == 3
    assert status["pools"][0]["storage"] == "10Gi"
    smaller = pool | {"storage": {"claim": {"size": "9Gi"}}}
    with pytest.raises(CommandError, match="a volume never gets smaller"):
        orders.kubectl.patch("wc", "orders", {"spec": {"pools": [smaller]}})
    kept = json.loads(orders.kubectl.get("configmap", "orders-accepted")["data"]["spec"])
    assert kept["pools"] == spec["pools"]
    orders.kubectl.patch("wc", "orders", {"spec": {"pools": [pool], "replication": spec["replication"]}})
    orders.wait_ready()
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.pods()} == before


def test_a_drain_during_a_roll_never_takes_a_second_broker(orders: Cluster) -> None:
    """Someone evicts whatever the budget gives while the operator rolls: each time all others are there."""
    orders.wait_ready()
    orders.wait_replicated()
    old = {pod["metadata"]["uid"] for pod in orders.pods()}
    served = set(old)
    orders.set_requests(memory="64Mi")

    def all_are_new() -> bool:
        pods = orders.pods()
        served.update(pod["metadata"]["uid"] for pod in pods if is_pod_ready(pod))
        there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["uid"] in served]
        assert len(there) >= 2, "two brokers were taken at once"
        left = [pod for pod in there if pod["metadata"]["uid"] in old]
        if left:
            evict(orders, left[-1])
        return not left and len(there) == 3

    wait_until("every broker to be made anew", all_are_new, timeout_s=400, every_s=0.2)
    orders.wait_ready()


def evict(cluster: Cluster, pod: Object) -> bool:
    """Evicts a pod like `kubectl drain` does; whether the budget allowed it."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{cluster.kubectl.namespace}/pods/{name}/eviction"
    try:
        cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    except CommandError as refused:
        if "disruption budget" in refused.said:
            return False
        raise
    return True


def test_a_cluster_whose_names_are_those_of_a_deleted_one_serves_none_of_its_records(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    kubectl = new_namespace("names")
    former = Cluster(kubectl, "tri")
    kubectl.apply(named("tri", spec_of("a-b", replicas=1)))
    former.wait_ready()
    with workbench.producing(former.bootstrap, "secret", producers=1) as load:
        load.wait_for_more(100)
    kubectl("delete", "wc", "tri", "--timeout=180s")
    kubectl("wait", "pod", "--selector=walrus.dev/cluster=tri", "--for=delete", "--timeout=180s")
    assert len(former.claims()) == 1

    other = Cluster(kubectl, "tri-a")
    kubectl.apply(named("tri-a", spec_of("b", replicas=1)))
    other.wait_for(
        "its claim is taken", lambda wc: wc["status"].get("plan", {}).get("blockedBy") == "NameTaken", timeout_s=60
    )
    assert other.pods() == []
    kubectl("delete", "persistentvolumeclaims", "--selector=walrus.dev/cluster=tri")
    other.wait_ready()
    said = workbench.walrus("topics", "--bootstrap", other.bootstrap)
    assert "secret" not in said
