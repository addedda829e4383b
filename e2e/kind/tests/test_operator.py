"""The operator itself: it may die at any time, it is silent when all is as wanted, it stays small."""

import json
from datetime import datetime

from harness.kube.cluster import Cluster
from harness.kube.figures import note
from harness.kube.installed import Installed
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.waiting import wait_until

QUIET_S = 60
DECISION = "authorization.k8s.io/decision"  # by its roles; what an admission plugin refuses is allowed there


def test_a_cluster_becomes_ready_though_the_operator_is_killed_in_the_middle(
    operator: Installed, new_namespace: NewNamespace
) -> None:
    cluster = Cluster(new_namespace("interrupted"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    wait_until("the StatefulSet", lambda: bool(cluster.kubectl.list("statefulsets")), timeout_s=120, every_s=0.1)
    operator.kill()
    cluster.wait_ready()
    assert len(cluster.pods()) == 3


def test_a_converged_cluster_causes_no_write_but_the_lease(operator: Installed, orders: Cluster) -> None:
    orders.wait_ready()
    try:
        wait_until(
            f"{QUIET_S} s without a write",
            lambda: since_last_write_s(operator) > QUIET_S,
            timeout_s=420,
            every_s=2,
        )
    except TimeoutError as late:
        last = [f"{each['requestReceivedTimestamp']} {each['verb']} {each['requestURI']}" for each in operator.writes()]
        late.add_note("\n".join(last[-20:]))
        raise


def test_the_operator_writes_nothing_of_a_cluster_but_its_status(orders: Cluster) -> None:
    resource = json.loads(orders.kubectl("get", "wc", "orders", "--show-managed-fields", "--output=json"))
    written = [each for each in resource["metadata"]["managedFields"] if "walrus-operator" in each["manager"]]
    assert [(each["subresource"], list(each["fieldsV1"])) for each in written] == [("status", ["f:status"])]


def test_the_roles_of_the_operator_allow_all_it_asked_for(operator: Installed, orders: Cluster) -> None:
    mine = operator.requests(of_pod=operator.pod()["metadata"]["name"])  # a former one may have outlived its roles
    forbidden = [each for each in mine if each.get("annotations", {}).get(DECISION) == "forbid"]
    assert [f"{each['verb']} {each['requestURI']}" for each in forbidden] == []


def test_the_operator_stays_small(operator: Installed, orders: Cluster) -> None:
    note("the operator's memory", operator.resident_kib() / 1024, "MiB", limit=160)


def since_last_write_s(operator: Installed) -> float:
    """By the clock of the machine that the API server shares with us."""
    writes = operator.writes()
    last = datetime.fromisoformat(writes[-1]["requestReceivedTimestamp"])
    return (datetime.now(last.tzinfo) - last).total_seconds()
