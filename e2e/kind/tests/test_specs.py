"""The API server refuses specs that cannot be, and says why."""

import copy
from typing import Any

import pytest
import yaml
from harness.kube.cluster import Cluster
from harness.kube.kubectl import CommandError
from harness.kube.repository import EXAMPLES

POOL: dict[str, Any] = {"name": "general", "storage": {"claim": {"size": "1Gi"}}}
SPEC: dict[str, Any] = {"version": "0.1.0", "pools": [POOL]}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "image and version": ({"image": "walrus:1"}, "give exactly one of image and version"),
    "no pools": ({"pools": []}, "spec.pools"),
    "two kinds of storage": (
        {"pools": [POOL | {"storage": {"claim": {"size": "1Gi"}, "local": {"size": "1Gi", "storageClassName": "l"}}}]},
        "exactly one of claim, local, hostPath",
    ),
    "no storage": ({"pools": [POOL | {"storage": {}}]}, "exactly one of claim, local, hostPath"),
    "a folder of the node by accident": (
        {"pools": [POOL | {"storage": {"hostPath": {"path": "/data"}}}]},
        "allowHostPath: true",
    ),
    "a backend that is not there": ({"pools": [POOL | {"backend": "floppy"}]}, "spec.pools[0].backend"),
    "io_uring on a volume that may be anywhere": (
        {"pools": [POOL | {"backend": "io_uring"}]},
        "backend: io_uring is for disks of nodes",
    ),
    "no brokers": ({"pools": [POOL | {"replicas": 0}]}, "spec.pools[0].replicas"),
    "more copies than brokers": ({"pools": [POOL | {"replicas": 1}]}, "with one broker write replication: {factor: 1}"),
    "half of the copies acknowledge": (
        {"replication": {"factor": 3, "writeQuorum": 1}},
        "replication.writeQuorum must be more than half",
    ),
    "segments of nothing": ({"segments": {"maxEntries": 0}}, "spec.segments.maxEntries"),
    "an interval without its mode": ({"fsync": {"mode": "each", "interval": "1s"}}, "fsync.interval goes with"),
    "an unknown deletion policy": ({"deletionPolicy": "Shred"}, "spec.deletionPolicy"),
}


def cluster_of(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": "wrong"}, "spec": spec}


@pytest.mark.parametrize("change", REFUSED)
def test_a_spec_is_refused_with_a_reason(orders: Cluster, change: str) -> None:
    wrong, reason = REFUSED[change]
    with pytest.raises(CommandError) as refused:
        orders.kubectl.apply(cluster_of(copy.deepcopy(SPEC) | wrong))
    assert reason in refused.value.said


def test_an_unknown_field_is_refused(orders: Cluster) -> None:
    with pytest.raises(CommandError, match="unknown field"):
        orders.kubectl.apply(cluster_of(SPEC | {"replicas": 3}))


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        ({"storage": {"claim": {"size": "1Gi"}}}, "a volume never gets smaller"),
        ({"storage": {"claim": {"size": "10Gi", "storageClassName": "expandable"}}}, "storage class of a pool cannot"),
    ],
)
def test_a_change_that_cannot_be_is_refused(orders: Cluster, pool: dict[str, Any], reason: str) -> None:
    pools = [orders.resource()["spec"]["pools"][0] | pool]
    with pytest.raises(CommandError) as refused:
        orders.kubectl.patch("wc", "orders", {"spec": {"pools": pools}})
    assert reason in refused.value.said


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_of_the_docs_is_accepted(orders: Cluster, example) -> None:
    for each in yaml.safe_load_all(example.read_text()):
        if each["kind"] == "WalrusCluster":
            each["metadata"].pop("namespace", None)
            each["metadata"]["name"] = "example"
            orders.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(each))
