"""A release that skips one is refused, and another operator restarts no broker."""

from harness.kube.cluster import Cluster
from harness.kube.installed import CONTROL_PLANE, NAMESPACE, Installed
from harness.kube.kubectl import Kubectl, NewNamespace, run
from harness.kube.repository import EXAMPLES
from harness.waiting import wait_until

IMAGE = "docker.io/walrus/walrus-operator"


def pods_of(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}


def test_a_release_that_skips_one_is_refused_and_the_one_before_goes_on(new_namespace: NewNamespace) -> None:
    cluster = Cluster(new_namespace("skipping"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.wait_ready()
    before = pods_of(cluster)
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"version": "0.3.0"}})
    cluster.wait_for("a refusal", lambda _: cluster.condition("SpecAccepted").get("reason") == "ReleaseRefused")
    assert "0.1.0" in cluster.condition("SpecAccepted")["message"], "the release to take"
    assert pods_of(cluster) == before
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"version": "0.1.0"}})
    cluster.wait_ready()
    assert pods_of(cluster) == before


def test_another_operator_restarts_no_broker_and_writes_nothing_of_a_cluster_at_rest(
    operator: Installed, orders: Cluster
) -> None:
    orders.wait_ready()
    before = pods_of(orders)
    tag = orders.resource()["spec"]["version"]
    run(*CONTROL_PLANE, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", f"{IMAGE}:{tag}", f"{IMAGE}:next")
    old = operator.pod()["metadata"]["name"]
    try:
        operator.install(image={"tag": "next"})
        new = operator.pod()["metadata"]["name"]
        assert new != old
        wait_until("the new operator to work", lambda: operator.holder() == new)
        wait_until("its first pass", lambda: any(operator.requests(of_pod=new)))
        orders.wait_ready()
        written = [one["objectRef"] for one in operator.requests(of_pod=new) if one["verb"] in ("patch", "update")]
        mine = {one["resource"] for one in written if one.get("namespace") == orders.kubectl.namespace}
        assert mine <= {"walrusclusters"}, "its status alone"
        assert pods_of(orders) == before
    finally:
        operator.install()
    Kubectl(NAMESPACE)("rollout", "status", "deployment/walrus-operator", "--timeout=180s")
    assert pods_of(orders) == before
