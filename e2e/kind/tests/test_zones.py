"""Brokers, copies and voters are spread over the zones of the workers, and any zone may be lost."""

from collections.abc import Iterator

import pytest
from harness.kube.cluster import Cluster, machine_of
from harness.kube.figures import timed
from harness.kube.kubectl import Kubectl, NewNamespace, Object, run
from harness.kube.machines import MACHINES
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench


@pytest.fixture
def cordoned() -> Iterator[str]:
    """A worker that takes no new pods, and so the only one of its zone."""
    name = next(node["metadata"]["name"] for node in MACHINES.list("nodes") if zone_of(node))
    MACHINES("cordon", name)
    yield name
    MACHINES("uncordon", name)


def test_any_zone_may_be_lost_while_records_are_written(new_namespace: NewNamespace, workbench: Workbench) -> None:
    cluster = founded(new_namespace("zones"))
    cluster.wait_ready()
    zones = {node["metadata"]["name"]: zone_of(node) for node in MACHINES.list("nodes")}
    told = {row["pod"]: row["zone"] for row in cluster.resource()["status"]["brokers"]}
    assert told == {pod["metadata"]["name"]: zones[machine_of(pod)] for pod in cluster.pods()}
    assert len(set(told.values())) == 3
    with workbench.producing(cluster.bootstrap, "zones") as load:
        load.wait_for_more(2_000)
        cluster.wait_for("a cluster that outlasts any zone", lambda found: survives(found) == "True")
        lost = cluster.pods()[-1]
        run("docker", "pause", machine_of(lost))
        try:
            with timed("a zone is lost to 2,000 more records"):
                load.wait_for_more(2_000)
        finally:
            run("docker", "unpause", machine_of(lost))
        cluster.wait_ready()
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "zones", load.acked)
    cluster.wait_replicated()
    cluster.wait_for("a cluster that outlasts any zone", lambda found: survives(found) == "True")


def test_brokers_wait_for_the_zones_that_are_required(new_namespace: NewNamespace, cordoned: str) -> None:
    cluster = founded(new_namespace("too-few-zones"))
    cluster.wait_for("a plan that says what lacks", lambda found: blocked_by(found) == "TooFewZones")
    assert "topology.required wants 3 zones" in cluster.resource()["status"]["plan"]["detail"]
    # The plan may be told before the scheduler has placed the two brokers that have a zone.
    cluster.wait_for("two placed brokers", lambda _: sum("nodeName" in pod["spec"] for pod in cluster.pods()) == 2)
    MACHINES("uncordon", cordoned)
    cluster.wait_ready()
    assert len({machine_of(pod) for pod in cluster.pods()}) == 3


def founded(kubectl: Kubectl) -> Cluster:
    """The cluster of docs/examples/walruscluster-zones.yaml."""
    kubectl("apply", "-f", str(EXAMPLES / "walruscluster-zones.yaml"))
    return Cluster(kubectl, "orders")


def zone_of(node: Object) -> str:
    """The zone of a machine; the control plane has none."""
    return str(node["metadata"]["labels"].get("topology.kubernetes.io/zone", ""))


def survives(found: Object) -> str | None:
    """What the condition says of the loss of a zone."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((str(one["status"]) for one in conditions if one["type"] == "SurvivesZoneLoss"), None)


def blocked_by(found: Object) -> str | None:
    """The gate that holds the cluster up."""
    return found.get("status", {}).get("plan", {}).get("blockedBy")  # type: ignore[no-any-return]
