"""Volumes grow while records are written, and no broker restarts; a class that cannot is refused.

Volumes are folders here and have no size, so these tests show what becomes of claims, StatefulSets and pods. That a
full disk takes writes again once it is larger is shown with a real file system: `node_image/tests/test_full_disk.py`.
"""

from collections.abc import Callable

import pytest
from harness.kube.cluster import Cluster, is_ready
from harness.kube.figures import timed
from harness.kube.kubectl import Kubectl, NewNamespace, Object
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

CLASSES = Kubectl("default")


@pytest.fixture(scope="module")
def drive() -> Callable[[Cluster], None]:
    """What makes volumes of the class `expandable` larger.

    Our own kind has a driver for that. Any other has none: there the class is made over the one of `standard`, and the
    test says what a driver would say.
    """
    if CLASSES.find("storageclass", "expandable") is not None:
        return lambda _: None
    provisioner = CLASSES.get("storageclass", "standard")["provisioner"]
    CLASSES.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "expandable"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
            "reclaimPolicy": "Delete",
            "allowVolumeExpansion": True,
        }
    )
    return grow_claims


def grow_claims(cluster: Cluster) -> None:
    """Says of each volume that it is as large as its claim asks for."""
    for claim in cluster.claims():
        wanted = claim["spec"]["resources"]["requests"]["storage"]
        if claim["status"].get("phase") == "Bound" and claim["status"]["capacity"]["storage"] != wanted:
            cluster.kubectl.patch("pv", claim["spec"]["volumeName"], {"spec": {"capacity": {"storage": wanted}}})
            status = f'{{"status": {{"capacity": {{"storage": "{wanted}"}}, "conditions": null}}}}'
            name = claim["metadata"]["name"]
            cluster.kubectl("patch", "pvc", name, "--subresource=status", "--type=merge", "--patch", status)


def spec_of(storage_class: str, size: str) -> Object:
    claim = {"size": size, "storageClassName": storage_class}
    return {
        "version": "0.1.0",
        "deletionPolicy": "Delete",
        "pools": [{"name": "general", "replicas": 3, "storage": {"claim": claim}}],
    }


def started(kubectl: Kubectl, storage_class: str) -> Cluster:
    named = {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": "orders"}}
    kubectl.apply(named | {"spec": spec_of(storage_class, "1Gi")})
    cluster = Cluster(kubectl, "orders")
    cluster.wait_ready()
    return cluster


def pods_of(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """The uid of each pod, and how often its containers started again."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in cluster.pods()
    }


def test_claims_grow_on_an_expandable_class_under_load_and_no_broker_restarts(
    new_namespace: NewNamespace, workbench: Workbench, drive: Callable[[Cluster], None]
) -> None:
    cluster = started(new_namespace("larger"), "expandable")
    before, old = pods_of(cluster), cluster.kubectl.get("statefulset", "orders-general")["metadata"]["uid"]

    def is_larger() -> bool:
        drive(cluster)
        resource = cluster.resource()
        return is_ready(resource) and resource["status"]["pools"][0]["storage"] == "2Gi"

    with workbench.producing(cluster.bootstrap, "larger") as load:
        load.wait_for_more(1_000)
        cluster.kubectl.patch("wc", "orders", {"spec": spec_of("expandable", "2Gi")})
        with timed("the claims of three brokers grow, under load"):
            wait_until("claims of 2Gi", is_larger, timeout_s=180, every_s=0.5)
        load.wait_for_more(1_000)
    workbench.check(cluster.bootstrap, "larger", load.acked)
    assert pods_of(cluster) == before
    assert {claim["status"]["capacity"]["storage"] for claim in cluster.claims()} == {"2Gi"}
    found = cluster.kubectl.get("statefulset", "orders-general")
    assert found["metadata"]["uid"] != old
    (template,) = found["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "2Gi"
    cluster.set_replicas(4)
    cluster.wait_ready()
    assert {claim["spec"]["resources"]["requests"]["storage"] for claim in cluster.claims()} == {"2Gi"}


def test_a_class_that_cannot_is_refused_and_nothing_is_begun(new_namespace: NewNamespace) -> None:
    cluster = started(new_namespace("small"), "standard")
    before = pods_of(cluster)
    cluster.kubectl.patch("wc", "orders", {"spec": spec_of("standard", "2Gi")})
    cluster.wait_for(
        "SpecAccepted is false", lambda _: cluster.condition("SpecAccepted").get("reason") == "ResizeRefused"
    )
    assert "must support resize" in cluster.condition("SpecAccepted")["message"]
    assert {claim["spec"]["resources"]["requests"]["storage"] for claim in cluster.claims()} == {"1Gi"}
    cluster.kubectl.patch("wc", "orders", {"spec": spec_of("standard", "1Gi")})
    cluster.wait_ready()
    assert pods_of(cluster) == before
