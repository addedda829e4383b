"""A roll and a drain share one budget: Kubernetes lets only as many brokers go as the cluster can spare."""

import asyncio

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed
from simapi import is_ready
from simkube import SimKube
from walrus_operator.kube.api import Conflict, Disrupting, Unreachable
from walrus_operator.kube.official import _mapped
from walrus_operator.objects import Ref

NEWER = changed(SMALLEST, version="2.0.0")


def started():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    converge(kube)
    return kube


def away(kube):
    """Brokers that do not serve, of the three that there shall be."""
    return 3 - sum(is_ready(pod) for pod in kube.pods().values())


class DrainedMeanwhile(SimKube):
    """Someone drains a node between the operator's last look and its eviction."""

    armed = None

    async def evict(self, ref, uid):
        if self.armed:
            assert self.ask_to_evict(self.armed)
            self.armed = None
        await super().evict(ref, uid)


def test_a_drain_and_a_roll_at_the_same_moment_take_one_broker():
    kube = DrainedMeanwhile()
    kube.put("orders", SMALLEST)
    converge(kube)
    kube.put("orders", NEWER)
    Operator(kube).once()
    kube.step()
    kube.armed = "orders-general-2"
    Operator(kube).once()
    assert kube.armed is None
    assert away(kube) == 1
    assert status(kube)["plan"]["blockedBy"] == "EvictionRefused"
    assert "disruption budget" in status(kube)["plan"]["detail"]
    converge(kube, each=lambda: away(kube) <= 1 or pytest.fail("two at once"))
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:2.0.0"}


def test_a_drain_during_a_roll_waits():
    kube = started()
    kube.put("orders", NEWER)
    while away(kube) == 0:
        Operator(kube).once()
        if away(kube) == 0:
            kube.step()
    assert not any(kube.ask_to_evict(name) for name, pod in kube.pods().items() if is_ready(pod))


def test_a_broker_that_crashes_does_not_keep_its_node_from_being_drained():
    kube = started()
    kube.unready.add("orders-general-1")
    converge(kube)
    assert kube.objects[Ref("PodDisruptionBudget", "shop", "orders")]["spec"]["maxUnavailable"] in (0, 1)
    kube.objects[Ref("PodDisruptionBudget", "shop", "orders")]["spec"]["maxUnavailable"] = 0
    assert not kube.ask_to_evict("orders-general-0")
    assert kube.ask_to_evict("orders-general-1")


def test_no_pod_but_the_one_that_was_looked_at_is_evicted():
    kube = started()
    with pytest.raises(Conflict):
        asyncio.run(kube.evict(Ref("Pod", "shop", "orders-general-1"), "another"))
    assert condition(kube, "Ready")["status"] == "True"


class AnswerError(Exception):
    """The error that the client raises."""

    reason = "Too Many Requests"

    def __init__(self, status, body):
        self.status, self.body = status, body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"message": "m", "details": {"causes": [{"reason": "DisruptionBudget"}]}}', Disrupting),
        ('{"message": "the server is busy"}', Unreachable),
        ('{"message": "m", "details": {"causes": null}}', Unreachable),
        ('{"message": "m", "details": null}', Unreachable),
        ("[]", Unreachable),
        ("", Unreachable),
        (None, Unreachable),
    ],
)
def test_a_budget_that_is_spent_is_told_from_a_server_that_is_busy(body, kind):
    assert type(_mapped("create Pod/eviction", AnswerError(429, body))) is kind
