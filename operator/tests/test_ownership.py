"""What belongs to a cluster: by owner and labels, never by a name that two clusters can share."""

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.objects import CLAIM, POD, SERVICE, SERVICE_ACCOUNT, Key, Ref

TRI = Key("shop", "tri")
OTHER = Key("shop", "tri-a")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def images(kube):
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in kube.pods().values()}


def gone(kube, name, key):
    kube.remove("WalrusCluster", name)
    converge(kube, key)


def test_a_cluster_never_mounts_the_disks_of_another_one_whose_names_are_the_same():
    kube = SimKube()
    kube.put("tri", with_pool(SMALLEST, name="a-b"))
    converge(kube, TRI)
    gone(kube, "tri", TRI)
    kube.put("tri-a", with_pool(SMALLEST, name="b"))
    converge(kube, OTHER)
    assert kube.pods() == {}
    assert status(kube, OTHER)["plan"]["blockedBy"] == "NameTaken"
    assert "walrus.dev/cluster=tri, walrus.dev/pool=a-b" in status(kube, OTHER)["plan"]["detail"]
    for ordinal in range(3):
        kube.remove("PersistentVolumeClaim", f"data-tri-a-b-{ordinal}")
    converge(kube, OTHER)
    assert status(kube, OTHER)["readyReplicas"] == 3
    assert status(kube, OTHER)["clusterId"] == "cluster-2"


def test_a_pool_does_not_grow_over_the_claim_of_another_cluster():
    kube = started()
    kube.make(
        CLAIM, "data-orders-general-3", {"walrus.dev/cluster": "other", "walrus.dev/pool": "x"}, spec={}, status={}
    )
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert set(kube.pods()) == {f"orders-general-{ordinal}" for ordinal in range(3)}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"


def test_a_claim_without_labels_is_mounted_once_it_is_labelled():
    kube = SimKube()
    kube.make(CLAIM, "data-orders-general-0", spec={}, status={"phase": "Bound"})
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.pods() == {}
    labels = {"walrus.dev/cluster": "orders", "walrus.dev/pool": "general"}
    kube.objects[Ref("PersistentVolumeClaim", "shop", "data-orders-general-0")]["metadata"]["labels"] = labels
    converge(kube)
    assert len(kube.pods()) == 3


def test_a_pod_of_someone_else_with_our_label_blocks_neither_rolls_nor_evictions():
    kube = started()
    labels = {"walrus.dev/cluster": "orders", "app.kubernetes.io/instance": "orders", "walrus.dev/pool": "general"}
    container = {"image": "theirs", "env": [{"name": "WALRUS_BACKEND", "value": "mmap"}]}
    kube.make(POD, "theirs", labels, spec={"containers": [container]}, status={})
    kube.stuck.add("theirs")
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    del kube.objects[Ref("Pod", "shop", "theirs")]
    assert images(kube) == {"2.0.0"}
    assert condition(kube, "Ready")["status"] == "True"


def test_a_claim_that_only_bears_our_label_keeps_no_cluster_from_being_founded():
    kube = SimKube()
    kube.make(CLAIM, "backup", {"walrus.dev/cluster": "orders", "walrus.dev/pool": "general"}, spec={}, status={})
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_the_claims_of_another_cluster_do_not_tell_how_many_brokers_come_back():
    kube = SimKube()
    kube.put("tri", with_pool(SMALLEST, name="a-b", replicas=5))
    converge(kube, TRI)
    gone(kube, "tri", TRI)
    kube.put("tri-a", with_pool(changed(SMALLEST, replication={"factor": 1}), name="c", replicas=1))
    converge(kube, OTHER)
    more = {"name": "b", "replicas": 3, "storage": {"claim": {"size": "1Gi"}}}
    spec = with_pool(changed(SMALLEST, replication={"factor": 1}), name="c", replicas=1)
    kube.put("tri-a", changed(spec, pools=[*spec["pools"], more]))
    converge(kube, OTHER)
    assert set(kube.pods()) == {"tri-a-c-0"}
    assert status(kube, OTHER)["plan"]["blockedBy"] == "NameTaken"


def orphaned():
    kube = started()
    kube.orphan("WalrusCluster", "orders")
    kube.step()
    return kube


def test_what_lost_its_owner_is_not_taken_over_unasked():
    kube = orphaned()
    before = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"
    assert "walrus.dev/adopt" in status(kube)["plan"]["detail"]
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == before
    assert images(kube) == {"1.0.0"}


@pytest.mark.parametrize("stripped", [True, False], ids=["no owner", "a former owner"])
def test_what_lost_its_owner_is_taken_over_where_the_cluster_says_so(stripped):
    kube = orphaned()
    if not stripped:
        for found in kube.objects.values():
            if found["kind"] not in ("Pod", "PersistentVolumeClaim", "Event"):
                former = {
                    "apiVersion": "walrus.dev/v1alpha1",
                    "kind": "WalrusCluster",
                    "name": "orders",
                    "uid": "former",
                    "controller": True,
                }
                found["metadata"]["ownerReferences"] = [former]
    before = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.put("orders", SMALLEST, annotations={"walrus.dev/adopt": "true"})
    Operator(kube).once()
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert status(kube)["clusterId"] == "cluster-1"
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == before
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_what_someone_else_owns_is_never_taken_over():
    kube = SimKube()
    theirs = kube.make(SERVICE_ACCOUNT, "theirs")
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "theirs", "uid": theirs["metadata"]["uid"]}
    service = kube.make(SERVICE, "orders", {"walrus.dev/cluster": "orders"}, spec={"selector": {}})
    service["metadata"]["ownerReferences"] = [owner]
    kube.put("orders", SMALLEST, annotations={"walrus.dev/adopt": "true"})
    converge(kube)
    assert kube.objects[Ref("Service", "shop", "orders")]["spec"] == {"selector": {}}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"
