"""Operators that die or freeze at any moment: another one goes on, and none writes that may not any more."""

from collections.abc import Iterator

import pytest
from harness.kube.cluster import Cluster, signal
from harness.kube.figures import timed
from harness.kube.installed import WRITES, Installed
from harness.kube.kubectl import NewNamespace, Object
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

STORY_S = 600


@pytest.fixture
def two(operator: Installed) -> Iterator[Installed]:
    """Two operators on the control plane, one of which works."""
    operator.install(replicas=2)
    wait_until("two operators", lambda: len(operator.pods()) == 2 and bool(operator.holder()))
    yield operator
    operator.install()


def holding(operator: Installed) -> Object:
    """The pod that works."""
    return next(pod for pod in operator.pods() if pod["metadata"]["name"] == operator.holder())


def wait_for_another(operator: Installed, old: Object) -> None:
    """Waits until another pod than this one works."""
    name = old["metadata"]["name"]
    wait_until("another operator to work", lambda: operator.holder() not in ("", name), timeout_s=90, every_s=0.1)


@pytest.mark.said("Lease walrus-operator is lost|Event loop is closed|Traceback")
def test_an_operator_that_was_frozen_writes_nothing_after_another_one_has_gone_on(
    two: Installed, orders: Cluster
) -> None:
    orders.wait_ready()
    frozen = holding(two)
    signal(frozen, "STOP")
    try:
        with timed("another operator works after one froze"):
            wait_for_another(two, frozen)
        (pool,) = orders.resource()["spec"]["pools"]
        orders.kubectl.patch("wc", orders.name, {"spec": {"pools": [pool | {"podLabels": {"story": "frozen"}}]}})
        orders.wait_for("the roll", lambda found: found["status"]["pools"][0]["updated"] > 0)
        before = len(writes(two, frozen))
    finally:
        signal(frozen, "CONT")
    orders.wait_ready(timeout_s=400)
    wait_until("the one that was frozen to start again", lambda: restarts(two, frozen) > 0, timeout_s=120)
    assert writes(two, frozen)[before:] == []
    assert len(orders.pods()) == 3


def writes(operator: Installed, pod: Object) -> list[str]:
    """What a pod of the operator wrote, but for the Lease."""
    return [
        f"{one['verb']} {one['requestURI']} {one['requestReceivedTimestamp']}"
        for one in operator.requests(of_pod=pod["metadata"]["name"])
        if one["verb"] in WRITES and one["objectRef"]["resource"] != "leases"
    ]


def restarts(operator: Installed, pod: Object) -> int:
    """How often the container of a pod was started again."""
    found = operator.kubectl.get("pod", pod["metadata"]["name"])
    return int(found["status"]["containerStatuses"][0]["restartCount"])


def test_an_operator_works_soon_after_one_ends_or_is_killed(two: Installed) -> None:
    old = holding(two)
    with timed("another operator works after SIGTERM", limit_s=5):
        two.kubectl("delete", "pod", old["metadata"]["name"], "--wait=false")
        wait_for_another(two, old)
    wait_until("two operators", lambda: len(two.pods()) == 2)
    two.kubectl("rollout", "status", "deployment/walrus-operator", "--timeout=180s")
    old = holding(two)
    with timed("an operator works after SIGKILL", limit_s=20):
        signal(old, "KILL")
        renewed = two.lease()["spec"]["renewTime"]
        # Another one, or the same one after its start.
        wait_until(
            "an operator to work", lambda: two.lease()["spec"]["renewTime"] != renewed, timeout_s=90, every_s=0.1
        )


def test_a_story_ends_alike_though_the_operator_is_killed_at_each_of_its_steps(
    operator: Installed, new_namespace: NewNamespace, workbench: Workbench
) -> None:
    """Three brokers become four, restart, and become three again; each new step costs an operator."""
    cluster = Cluster(new_namespace("murdered"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"deletionPolicy": "Delete"}})
    cluster.wait_ready()
    killed: set[str] = set()
    with workbench.producing(cluster.bootstrap, "murdered", partitions=4) as load:
        load.wait_for_more(2_000)
        cluster.set_replicas(4)
        kill_at_each_step(operator, cluster, killed)
        cluster.kubectl("annotate", "wc", cluster.name, "walrus.dev/roll=once")
        kill_at_each_step(operator, cluster, killed)
        cluster.set_replicas(3)
        kill_at_each_step(operator, cluster, killed)
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "murdered", load.acked, partitions=4)
    assert len(killed) >= 4, killed
    assert len(cluster.members()) == len(cluster.pods()) == len(cluster.claims()) == 3
    cluster.wait_replicated()


def kill_at_each_step(operator: Installed, cluster: Cluster, killed: set[str]) -> None:
    """Kills the operator whenever the status tells a phase or a gate with which none was killed yet; until Ready."""
    done: list[Object] = []

    def is_there() -> bool:
        found = cluster.resource()
        status = found["status"]
        step = f"{status['phase']} {status.get('plan', {}).get('blockedBy')} {status.get('plan', {}).get('next')}"
        if status["phase"] != "Running" and step not in killed:
            killed.add(step)
            operator.kill()
        done[:] = [found]
        return cluster.condition("Ready").get("status") == "True"

    wait_until("the end of the story", is_there, timeout_s=STORY_S, every_s=0.1)
