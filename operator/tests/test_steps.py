"""What one step meets stops no other: of all that can happen to brokers, the first that nothing stops does."""

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.kube.api import Conflict, Denied, Missing, Unreachable
from walrus_operator.objects import CLAIM, STATEFUL_SET, Ref

GENERAL = Ref(STATEFUL_SET.name, "shop", "orders-general")
MORE = Ref(STATEFUL_SET.name, "shop", "orders-more")


def two_pools(more=2, **fields):
    pool = {"name": "more", "replicas": more, "storage": {"claim": {"size": "1Gi"}}}
    return changed(SMALLEST, pools=[*SMALLEST["pools"], pool], **fields)


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    return kube


def images(kube, pool="general"):
    return {
        pod["spec"]["containers"][0]["image"].rpartition(":")[2]
        for name, pod in kube.pods().items()
        if name.startswith(f"orders-{pool}-")
    }


def uid(kube, pod):
    return kube.pods()[pod]["metadata"]["uid"]


def foreign_claim(kube, pod):
    kube.make(CLAIM, f"data-{pod}", {"walrus.dev/cluster": "other"}, spec={}, status={"phase": "Bound"})


def test_a_new_version_does_not_wait_for_a_broker_whose_claim_is_someone_elses():
    """Growth met another cluster's claim in each pass, and nothing else was tried: no roll ever began."""
    kube = started()
    foreign_claim(kube, "orders-general-3")
    kube.put("orders", with_pool(changed(SMALLEST, version="2.0.0"), replicas=4))
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"


def test_a_broken_pod_does_not_wait_for_a_broker_that_cannot_be_dismissed():
    kube = started(two_pools())
    kube.nodes.limit_disks(5)
    kube.put("orders", two_pools(more=3))
    converge(kube)
    kube.refused[MORE] = Denied("patch StatefulSet: forbidden")
    kube.unready.add("orders-general-1")
    kube.step()
    before = uid(kube, "orders-general-1")
    kube.put("orders", with_pool(two_pools(), nodeSelector={"disk": "fast"}))
    converge(kube)
    assert uid(kube, "orders-general-1") != before
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"


@pytest.mark.parametrize(("refused", "other"), [("general", "more"), ("more", "general")])
def test_a_pool_whose_set_is_refused_holds_up_no_roll_of_another(refused, other):
    kube = started(two_pools())
    kube.refused[GENERAL if refused == "general" else MORE] = Denied("patch StatefulSet: forbidden")
    kube.put("orders", two_pools(version="2.0.0"))
    converge(kube)
    assert images(kube, other) == {"2.0.0"}
    assert images(kube, refused) == {"1.0.0"}
    kube.refused.clear()
    converge(kube)
    assert images(kube, refused) == {"2.0.0"}


def test_a_pool_that_cannot_grow_holds_up_no_growth_of_another():
    kube = started(two_pools())
    foreign_claim(kube, "orders-general-3")
    kube.put("orders", with_pool(two_pools(more=3), replicas=4))
    converge(kube)
    assert kube.objects[MORE]["spec"]["replicas"] == 3
    assert kube.objects[GENERAL]["spec"]["replicas"] == 3


def test_one_pass_does_one_step_however_many_there_are():
    kube = started(two_pools())
    kube.put("orders", two_pools(version="2.0.0"))
    Operator(kube).once()
    kube.step()
    passed = Operator(kube).once()
    assert len(passed.plan.steps) == 2
    assert [action for action in passed.done.actions if action in passed.plan.steps] == [passed.plan.steps[0]]


def test_after_an_eviction_that_nobody_answered_no_other_pod_is_evicted():
    kube = started(two_pools())
    kube.put("orders", two_pools(version="2.0.0"))
    Operator(kube).once()
    kube.step()
    kube.refused[Ref("Pod", "shop", "orders-general-1")] = Unreachable("create Pod/eviction: timed out")
    for _ in range(3):
        passed = Operator(kube).once()
        assert not set(passed.plan.steps) & set(passed.done.actions)
    assert images(kube) | images(kube, "more") == {"1.0.0"}


@pytest.mark.parametrize("error", [Conflict("orders-more is another one"), Missing("there is no orders-more")])
def test_what_has_changed_since_the_look_holds_up_only_what_needs_it(error):
    kube = started(two_pools())
    kube.refused[MORE] = error
    kube.put("orders", two_pools(version="2.0.0", segments={"maxEntries": 7}))
    converge(kube)
    assert images(kube) == {"2.0.0"}
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert status(kube)["plan"]["blockedBy"] == "ChangedMeanwhile"
