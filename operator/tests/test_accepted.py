"""What the planner refuses changes nothing: the cluster stays as the last accepted spec made it, and repairs go on."""

import pytest
from driving import Operator, condition, converge, status
from examples import OUTSIDE, SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.objects import CONFIG_MAP, Ref
from walrus_operator.observe.snapshot import Replication

KEPT = Ref("ConfigMap", "shop", "orders-accepted")
FOUR = with_pool(SMALLEST, replicas=4)
FEWER = with_pool(changed(SMALLEST, replication={"factor": 1}), replicas=1)


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def size(spec, text):
    return with_pool(spec, storage={"claim": {"size": text}})


def test_fewer_brokers_and_fewer_copies_at_once_are_refused_whole():
    kube = started(FOUR)
    kube.put("orders", FEWER)
    converge(kube)
    assert condition(kube, "SpecAccepted")["reason"] == "ShrinkRefused"
    assert kube.replication["cluster-1"] == Replication(3, 2)
    assert status(kube)["replication"]["factor"] == 3


@pytest.mark.parametrize(
    "refused",
    [size(SMALLEST, "2Gi"), with_pool(SMALLEST, replicas=2), {**SMALLEST, "unknown": 1}],
)
def test_a_refused_change_holds_up_every_other_one_of_the_same_spec(refused):
    kube = started()
    before = uids(kube)
    kube.put("orders", changed(refused, version="2.0.0", segments={"maxEntries": 500}, listeners=[]))
    converge(kube)
    assert condition(kube, "SpecAccepted")["status"] == "False"
    assert uids(kube) == before
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 1_000_000
    assert Ref("Service", "shop", "orders") in kube.objects
    assert len(kube.pods()) == 3


def test_repairs_go_on_as_the_last_accepted_spec_says_over_restarts_and_without_a_status():
    kube = started(OUTSIDE)
    kube.put("orders", {**size(OUTSIDE, "1Ti"), "listeners": []})
    Operator(kube).once()
    kube.objects[Ref("WalrusCluster", "shop", "orders")]["status"] = {}
    kube.remove("Service", "orders-text")
    kube.remove("PodDisruptionBudget", "orders")
    kube.scale("orders-general", 1)
    kube.step()
    converge(kube)
    assert kube.objects[Ref("Service", "shop", "orders-text")]["spec"]["ports"][0]["nodePort"] == 30080
    assert Ref("PodDisruptionBudget", "shop", "orders") in kube.objects
    assert len(kube.pods()) == 3
    assert status(kube)["readyReplicas"] == 3


def test_brokers_whose_statefulset_was_deleted_come_back_while_a_spec_is_refused():
    kube = started()
    kube.put("orders", {**SMALLEST, "unknown": 1})
    kube.remove("StatefulSet", "orders-general")
    kube.step()
    assert not kube.pods()
    converge(kube)
    assert condition(kube, "SpecAccepted")["status"] == "False"
    assert status(kube)["readyReplicas"] == 3


def test_a_release_that_fails_is_taken_back_to_the_accepted_one_while_a_later_spec_is_refused():
    kube = started()
    kube.put("orders", changed(size(SMALLEST, "2Gi"), version="2.0.0"))
    converge(kube)
    kube.broken.add("walrus/walrus-node:2.0.0")
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:1.0.0"}
    assert status(kube)["readyReplicas"] == 3


def test_growth_stops_where_it_is_while_a_spec_is_refused():
    kube = started()
    kube.put("orders", with_pool(SMALLEST, replicas=6))
    while len(kube.pods()) < 4 or status(kube)["readyReplicas"] < 4:
        Operator(kube).once()
        kube.step()
    kube.put("orders", size(with_pool(SMALLEST, replicas=6), "2Gi"))
    converge(kube)
    assert len(kube.pods()) in (4, 5)
    assert condition(kube, "SpecAccepted")["reason"] == "ResizeRefused"
    kube.put("orders", with_pool(SMALLEST, replicas=len(kube.pods())))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize("data", [None, {}, {"spec": "{"}, {"spec": "[]"}, {"spec": '{"of": "another release"}'}])
def test_where_no_accepted_spec_is_known_only_the_budget_follows(data):
    kube = started()
    kube.remove("ConfigMap", "orders-accepted")
    kube.put("orders", size(SMALLEST, "2Gi"))
    if data is not None:
        kept = kube.make(CONFIG_MAP, "orders-accepted", {"walrus.dev/cluster": "orders"}, data=data)
        kept["metadata"]["ownerReferences"] = kube.objects[Ref("Service", "shop", "orders")]["metadata"][
            "ownerReferences"
        ]
    kube.stuck.add("orders-general-1")
    kube.remove("Pod", "orders-general-1")
    kube.remove("Service", "orders")
    converge(kube)
    assert kube.objects[Ref("PodDisruptionBudget", "shop", "orders")]["spec"]["maxUnavailable"] == 0
    assert Ref("Service", "shop", "orders") not in kube.objects
    kube.stuck.clear()
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


# Sizes of volumes


@pytest.mark.parametrize("kind", ["claim", "local"])
def test_a_size_that_was_refused_goes_back_to_what_the_claims_have(kind):
    def sized(text):
        more = {} if kind == "claim" else {"storageClassName": "disks"}
        return with_pool(SMALLEST, storage={kind: {"size": text, **more}})

    kube = started(sized("10Gi"))
    assert status(kube)["pools"][0]["storage"] == "10Gi"
    kube.put("orders", sized("20Gi"))
    converge(kube)
    assert condition(kube, "SpecAccepted")["reason"] == "ResizeRefused"
    assert "set size back to 10Gi" in condition(kube, "SpecAccepted")["message"]
    assert status(kube)["pools"][0]["storage"] == "10Gi"
    for text in ("10Gi", "10240Mi"):
        kube.put("orders", sized(text))
        converge(kube)
        assert condition(kube, "Ready")["status"] == "True"


def test_a_size_may_follow_claims_that_someone_made_larger():
    kube = started(size(SMALLEST, "10Gi"))
    for ref, found in kube.objects.items():
        if ref.kind == "PersistentVolumeClaim":
            found["spec"]["resources"]["requests"]["storage"] = "20Gi"
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert status(kube)["pools"][0]["storage"] == "20Gi"
    for text, accepted in (("30Gi", "False"), ("10Gi", "True"), ("20Gi", "True"), ("10Gi", "False")):
        kube.put("orders", size(SMALLEST, text))
        converge(kube)
        assert condition(kube, "SpecAccepted")["status"] == accepted


def test_while_a_spec_is_refused_the_status_speaks_of_the_one_in_force():
    """It told of a replication that waits, of growth, and of Services that were never made."""
    accepted = with_pool(SMALLEST, replicas=4)
    kube = SimKube()
    kube.put("orders", accepted)
    converge(kube)
    before = status(kube)
    wished = changed(
        SMALLEST,
        replication={"factor": 1},
        listeners=[{"name": "grpc", "type": "NodePort"}],
        pools=[
            *with_pool(SMALLEST, replicas=1, storage={"claim": {"size": "2Gi"}})["pools"],
            {"name": "more", "replicas": 5, "storage": {"claim": {"size": "1Gi"}}},
        ],
    )
    kube.put("orders", wished)
    converge(kube)
    after = status(kube)
    assert condition(kube, "SpecAccepted")["reason"] == "ResizeRefused"
    assert condition(kube, "Replicated")["status"] == "True"
    assert (before["phase"], after["phase"]) == ("Running", "Blocked")
    for told in ("replicas", "readyReplicas", "listeners", "pools", "replication"):
        assert after[told] == before[told], told
    assert after["observedGeneration"] > before["observedGeneration"]
