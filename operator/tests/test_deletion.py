"""The deleted spec decides what becomes of the claims, whatever was done of it; in doubt they stay."""

import asyncio

import pytest
from crashing import crash_at_each_write
from driving import KEY, Operator, converge, status
from examples import SMALLEST, changed
from simapi import is_ready
from simkube import SimKube
from walrus_operator.act.executor import _marked
from walrus_operator.kube.api import Conflict, Denied
from walrus_operator.objects import CLAIM, Ref

CLUSTER = Ref("WalrusCluster", "shop", "orders")
KEEPS = SMALLEST
REMOVES = changed(SMALLEST, deletionPolicy="Delete")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def claims(kube):
    return sorted(ref.name for ref in kube.objects if ref.kind == "PersistentVolumeClaim")


def finalizers(kube):
    return kube.objects[CLUSTER]["metadata"].get("finalizers", [])


def removed(kube):
    kube.remove("WalrusCluster", "orders")
    converge(kube)
    assert CLUSTER not in kube.objects
    assert {ref.kind for ref in kube.objects} <= {"Event", "PersistentVolumeClaim"}


def test_only_a_cluster_whose_claims_go_with_it_bears_a_finalizer():
    kube = started(KEEPS)
    assert finalizers(kube) == []
    kube.put("orders", REMOVES)
    converge(kube)
    assert finalizers(kube) == ["walrus.dev/claims"]
    kube.put("orders", KEEPS)
    converge(kube)
    assert finalizers(kube) == []


def test_delete_that_became_retain_a_moment_before_the_deletion_keeps_the_claims():
    kube = started(REMOVES)
    kube.put("orders", KEEPS)
    removed(kube)
    assert len(claims(kube)) == 3


def test_kubernetes_itself_removes_no_claim_while_the_operator_is_away():
    kube = started(REMOVES)
    kube.put("orders", KEEPS)
    kube.remove("WalrusCluster", "orders")
    kube.objects[CLUSTER]["metadata"].pop("finalizers")  # as the guide says to do where there is no operator any more
    while kube.step():
        pass
    assert len(claims(kube)) == 3


def test_retain_that_became_delete_before_the_operator_saw_it_keeps_the_claims_as_nobody_was_asked():
    kube = started(KEEPS)
    kube.put("orders", REMOVES)
    removed(kube)
    assert len(claims(kube)) == 3


def test_delete_takes_the_claims_of_its_pools_and_no_others():
    kube = started(REMOVES)
    labels = {"walrus.dev/cluster": "orders", "walrus.dev/pool": "former"}
    kube.make(CLAIM, "data-orders-former-0", labels, spec={}, status={"phase": "Bound"})
    kube.make(CLAIM, "data-other-0", {"walrus.dev/cluster": "other"}, spec={}, status={"phase": "Bound"})
    removed(kube)
    assert claims(kube) == ["data-orders-former-0", "data-other-0"]


def test_a_spec_that_nobody_can_read_keeps_the_claims_unless_it_says_delete():
    kube = started(REMOVES)
    kube.put("orders", {**REMOVES, "unknown": 1, "deletionPolicy": "delete"})
    removed(kube)
    assert len(claims(kube)) == 3
    kube = started(REMOVES)
    kube.put("orders", {**REMOVES, "unknown": 1, "pools": "none"})
    removed(kube)
    assert claims(kube) == []


def test_a_claim_that_may_not_be_removed_holds_the_deletion_and_is_told():
    kube = started(REMOVES)
    kube.refused[Ref("PersistentVolumeClaim", "shop", "data-orders-general-1")] = Denied("delete: forbidden")
    kube.remove("WalrusCluster", "orders")
    converge(kube)
    assert finalizers(kube) == ["walrus.dev/claims"]
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    kube.refused.clear()
    converge(kube)
    assert claims(kube) == []
    assert CLUSTER not in kube.objects


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after Kubernetes let go"])
def test_a_cluster_that_is_deleted_without_what_belongs_to_it_keeps_its_claims(late):
    """`--cascade=orphan` left the StatefulSets, and the operator deleted the claims under their brokers."""
    kube = started(REMOVES)
    kube.orphan("WalrusCluster", "orders")
    if late:
        kube.step()
    converge(kube)
    assert CLUSTER not in kube.objects
    assert len(claims(kube)) == 3
    assert not any("deletionTimestamp" in kube.objects[ref]["metadata"] for ref in kube.objects)
    assert sum(is_ready(pod) for pod in kube.pods().values()) == 3


def test_a_paused_cluster_keeps_its_claims_until_it_goes_on_and_retain_waits_for_nobody():
    kube = started(REMOVES)
    kube.put("orders", REMOVES, annotations={"walrus.dev/pause": "looking"})
    kube.remove("WalrusCluster", "orders")
    converge(kube)
    assert len(claims(kube)) == 3
    assert status(kube)["plan"]["blockedBy"] == "Paused"
    kube.put("orders", KEEPS, annotations={"walrus.dev/pause": "looking"})
    converge(kube)
    assert CLUSTER not in kube.objects
    assert len(claims(kube)) == 3


def test_a_cluster_of_the_same_name_is_not_marked_for_the_former_one():
    kube = started(REMOVES)
    snapshot = asyncio.run(Operator(kube).reconciler._observer.look(KEY))
    removed(kube)
    kube.put("orders", KEEPS)
    with pytest.raises(Conflict):
        asyncio.run(kube.apply(_marked(snapshot.cluster, held=True)))
    assert finalizers(kube) == []


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_crash_at_any_write_of_a_deletion_leads_to_the_same_end(policy):
    def delete(kube):
        kube.put("orders", changed(SMALLEST, deletionPolicy=policy))
        kube.remove("WalrusCluster", "orders")

    def check(kube):
        assert (len(claims(kube)), CLUSTER in kube.objects) == (0 if policy == "Delete" else 3, False)

    crash_at_each_write(started(REMOVES), [delete], check)
