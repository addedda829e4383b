"""What Kubernetes refuses holds up only what needs it, and never the budget."""

import pytest
from driving import Operator, condition, converge, status
from examples import OUTSIDE, SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.kube.api import Denied, Refused, Unreachable
from walrus_operator.objects import SERVICE, STATEFUL_SET, Ref

BUDGET = Ref("PodDisruptionBudget", "shop", "orders")
SET = Ref("StatefulSet", "shop", "orders-general")
TEXT = Ref("Service", "shop", "orders-text")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def images(kube):
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in kube.pods().values()}


def test_a_node_port_that_is_taken_holds_up_that_service_and_nothing_else():
    kube = started(OUTSIDE)
    kube.remove(*("Service", "orders-text"))
    kube.refused[TEXT] = Refused("patch Service: provided port is already allocated")
    kube.stuck.add("orders-general-2")
    kube.remove("Pod", "orders-general-2")
    kube.put("orders", changed(OUTSIDE, segments={"maxEntries": 7}))
    converge(kube)
    assert kube.objects[BUDGET]["spec"]["maxUnavailable"] == 0
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert condition(kube, "SpecAccepted")["reason"] == "ObjectRefused"
    assert "already allocated" in condition(kube, "SpecAccepted")["message"]
    kube.stuck.clear()
    kube.put("orders", changed(with_pool(OUTSIDE, replicas=4), version="2.0.0"))
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert len(kube.pods()) == 4
    kube.refused.clear()
    converge(kube)
    assert TEXT in kube.objects
    assert condition(kube, "Ready")["status"] == "True"


def test_a_new_cluster_starts_although_the_service_for_clients_outside_is_refused():
    kube = SimKube()
    kube.refused[TEXT] = Refused("patch Service: provided port is already allocated")
    kube.put("orders", OUTSIDE)
    converge(kube)
    assert status(kube)["readyReplicas"] == 3


@pytest.mark.parametrize("kind", ["ServiceAccount", "ConfigMap", "Service"])
def test_brokers_wait_for_what_they_read(kind):
    name = {"ServiceAccount": "orders", "ConfigMap": "orders-config", "Service": "orders-brokers"}[kind]
    kube = SimKube()
    kube.refused[Ref(kind, "shop", name)] = Denied(f"create {kind}: exceeded quota: objects")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert SET not in kube.objects
    assert BUDGET in kube.objects
    kube.refused.clear()
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize("said", ["exceeded quota: services", "Unauthorized", "pods is forbidden"])
def test_what_the_operator_may_not_do_is_no_fault_of_the_spec(said):
    kube = started()
    kube.refused[Ref(SERVICE.name, "shop", "orders")] = Denied(said)
    kube.remove("Service", "orders")
    converge(kube)
    assert (status(kube)["plan"]["blockedBy"], status(kube)["plan"]["detail"]) == ("Forbidden", said)
    assert condition(kube, "SpecAccepted")["status"] == "True"
    assert condition(kube, "Ready")["status"] == "False"
    assert condition(kube, "Available")["status"] == "True"


def test_an_object_of_which_kubernetes_says_nothing_holds_up_only_what_needs_it():
    kube = started()
    kube.refused[Ref(SERVICE.name, "shop", "orders")] = Unreachable("patch Service: failed calling webhook")
    kube.remove("Service", "orders")
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert status(kube)["plan"]["blockedBy"] == "Unanswered"
    assert condition(kube, "SpecAccepted")["status"] == "True"


def test_a_budget_that_is_refused_stops_no_roll():
    kube = started()
    kube.refused[BUDGET] = Denied("patch PodDisruptionBudget: forbidden")
    kube.remove("PodDisruptionBudget", "orders")
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    assert images(kube) == {"2.0.0"}


def test_an_eviction_that_is_forbidden_is_told():
    kube = started()
    for name in kube.pods():
        kube.refused[Ref("Pod", "shop", name)] = Denied("create Pod/eviction: forbidden")
    kube.put("orders", changed(SMALLEST, version="2.0.0", segments={"maxEntries": 7}))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    kube.refused.clear()
    converge(kube)
    assert images(kube) == {"2.0.0"}


@pytest.mark.parametrize("labelled", [True, False])
def test_a_service_of_someone_else_stops_neither_rolls_nor_settings(labelled):
    kube = started()
    kube.remove("Service", "orders")
    kube.make(SERVICE, "orders", {"walrus.dev/cluster": "orders"} if labelled else {}, spec={"selector": {}})
    kube.put("orders", changed(SMALLEST, version="2.0.0", segments={"maxEntries": 7}))
    converge(kube)
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert images(kube) == {"2.0.0"}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"
    assert kube.objects[Ref("Service", "shop", "orders")]["spec"] == {"selector": {}}
    assert Operator(kube).once().done.actions == ()


def test_a_set_of_someone_else_holds_up_its_pool_alone():
    kube = SimKube()
    theirs = {"replicas": 0, "template": {}, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}
    kube.make(STATEFUL_SET, "orders-more", spec=theirs)
    more = {"name": "more", "replicas": 1, "storage": {"claim": {"size": "1Gi"}}}
    kube.put("orders", changed(SMALLEST, pools=[*SMALLEST["pools"], more]))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"
    assert status(kube)["readyReplicas"] == 3


class Hiding(SimKube):
    """Kinds of objects may not be read."""

    def __init__(self):
        super().__init__()
        self.hidden = set()

    async def list(self, kind, namespace, selector=""):
        self._meet("list", kind.name, namespace)
        return await super().list(kind, namespace, selector)

    async def get(self, ref):
        self._meet("get", ref.kind, ref.namespace)
        return await super().get(ref)

    def _meet(self, verb, kind, namespace):
        if kind in self.hidden:
            raise Denied(f"{verb} {kind}: {kind} is forbidden in the namespace {namespace}")


NEEDED = ["StatefulSet", "ConfigMap", "Service", "ServiceAccount", "Secret", "Pod", "PersistentVolumeClaim"]
"""Kinds without which no broker can be made, or made anew."""


def hiding(kind, spec=SMALLEST):
    kube = Hiding()
    kube.put("orders", spec)
    converge(kube)
    kube.hidden = {kind}
    return kube


@pytest.mark.parametrize("kind", NEEDED)
def test_a_kind_that_may_not_be_read_is_named_and_nothing_is_built_upon_its_absence(kind):
    """The whole pass failed; and what cannot be seen is not gone."""
    kube = hiding(kind)
    before = {ref: found["metadata"]["uid"] for ref, found in kube.objects.items() if ref.kind != "Event"}
    kube.put("orders", with_pool(changed(SMALLEST, version="2.0.0"), replicas=4))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    assert f"{kind} is forbidden in the namespace shop" in status(kube)["plan"]["detail"]
    assert "BrokerLost" not in [found["reason"] for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert images(kube) == {"1.0.0"}
    assert before.items() <= {ref: found["metadata"]["uid"] for ref, found in kube.objects.items()}.items()
    kube.hidden = set()
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert len(kube.pods()) == 4
    assert condition(kube, "Ready")["status"] == "True"


def test_brokers_follow_the_spec_though_the_budget_may_not_be_read():
    kube = hiding("PodDisruptionBudget")
    kube.put("orders", with_pool(changed(SMALLEST, version="2.0.0"), replicas=4))
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert len(kube.pods()) == 4
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "ServiceAccount", "Secret", "PersistentVolumeClaim"])
def test_the_budget_follows_though_another_kind_may_not_be_read(kind):
    kube = hiding(kind)
    kube.stuck.add("orders-general-2")
    kube.remove("Pod", "orders-general-2")
    converge(kube)
    assert kube.objects[BUDGET]["spec"]["maxUnavailable"] == 0
    kube.stuck.clear()
    converge(kube)
    assert kube.objects[BUDGET]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("kind", ["Service", "ServiceAccount", "PodDisruptionBudget", "Secret"])
def test_settings_follow_though_a_kind_may_not_be_read_that_they_do_not_need(kind):
    kube = hiding(kind)
    kube.put("orders", changed(SMALLEST, segments={"maxEntries": 7}))
    converge(kube)
    reached = kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert reached == (kind != "Secret")  # brokers ask for the token


def test_brokers_that_may_not_be_looked_at_are_not_said_to_be_gone():
    kube = hiding("Pod")
    rows = status(kube)["brokers"]
    converge(kube)
    assert status(kube)["brokers"] == rows
    assert condition(kube, "Ready")["status"] == "Unknown"
    assert condition(kube, "Available")["status"] == "Unknown"


@pytest.mark.parametrize("kind", ["StatefulSet", "PersistentVolumeClaim", "ConfigMap"])
def test_a_deletion_waits_until_the_claims_that_shall_go_can_be_seen(kind):
    """They were taken to be gone, and stayed for ever."""
    kube = hiding(kind, changed(SMALLEST, deletionPolicy="Delete"))
    kube.remove("WalrusCluster", "orders")
    for _ in range(3):
        Operator(kube).once()
        kube.step()
    assert Ref("WalrusCluster", "shop", "orders") in kube.objects
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    kube.hidden = set()
    for _ in range(6):
        Operator(kube).once()
        kube.step()
    assert not [ref for ref in kube.objects if ref.kind in ("WalrusCluster", "PersistentVolumeClaim")]
