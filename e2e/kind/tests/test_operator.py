"""The operator itself: it may die at any time, it is silent when all is as wanted, it stays small."""

import threading
from datetime import datetime

from harness.kube.cluster import Cluster
from harness.kube.figures import figures
from harness.kube.installed import Installed
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.load import wait_until

QUIET_S = 60
RESIDENT_KIB_MAX = 160 * 1024
DECISION = "authorization.k8s.io/decision"  # by its roles; what an admission plugin refuses is allowed there


def test_a_cluster_becomes_ready_though_the_operator_is_killed_in_the_middle(
    operator: Installed, new_namespace: NewNamespace
) -> None:
    cluster = Cluster(new_namespace("interrupted"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    wait_until(lambda: bool(cluster.kubectl.list("statefulsets")), "the StatefulSet", 120, every_s=0.1)
    operator.kill()
    cluster.wait_ready()
    assert len(cluster.pods()) == 3


def test_a_converged_cluster_causes_no_write_but_the_lease(operator: Installed, orders: Cluster) -> None:
    orders.wait_ready()
    wait_until(lambda: seconds_since_last_write(operator) > 10, "the operator to have nothing to do", 180, every_s=2)
    before = len(operator.writes())
    threading.Event().wait(QUIET_S)  # the time that is measured, not one that is hoped to be enough
    assert [f"{each['verb']} {each['requestURI']}" for each in operator.writes()[before:]] == []


def test_the_roles_of_the_operator_allow_all_it_asked_for(operator: Installed, orders: Cluster) -> None:
    forbidden = [each for each in operator.requests() if each["annotations"][DECISION] != "allow"]
    assert [f"{each['verb']} {each['requestURI']}" for each in forbidden] == []


def test_the_operator_stays_small(operator: Installed, orders: Cluster) -> None:
    resident = operator.resident_kib()
    figures["operator, resident"] = f"{resident / 1024:.0f} MiB"
    assert resident <= RESIDENT_KIB_MAX


def seconds_since_last_write(operator: Installed) -> float:
    """By the clock of the machine that the API server shares with us."""
    writes = operator.writes()
    last = datetime.fromisoformat(writes[-1]["requestReceivedTimestamp"])
    return (datetime.now(last.tzinfo) - last).total_seconds()
