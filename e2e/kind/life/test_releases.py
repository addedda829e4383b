"""A release that skips one is tried on one broker and taken back, and another operator restarts no broker."""

from harness.kube.cluster import Cluster
from harness.kube.installed import CONTROL_PLANE, NAMESPACE, Installed
from harness.kube.kubectl import Kubectl, NewNamespace, run
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

IMAGE = "docker.io/walrus/walrus-operator"


def pods_of(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}


def test_a_release_that_does_not_understand_the_others_costs_one_broker_until_it_is_taken_back(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("skipping"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.wait_ready()
    before = pods_of(cluster)
    present = cluster.pods()[0]["spec"]["containers"][0]["image"]
    skipping = present.replace("walrus-node", "walrus-test-skipping")
    with workbench.producing(cluster.bootstrap, "skipping", partitions=4) as load:
        load.wait_for_more(2_000)
        cluster.kubectl.patch("wc", cluster.name, {"spec": {"image": skipping, "version": None}})
        cluster.wait_for("a refusal", lambda _: cluster.condition("SpecAccepted").get("reason") == "ReleaseRefused")
        assert "no other broker follows it" in cluster.condition("SpecAccepted")["message"]
        load.wait_for_more(2_000)
        kept = [name for name, uid in pods_of(cluster).items() if before[name] == uid]
        assert len(kept) == 2
        cluster.kubectl.patch("wc", cluster.name, {"spec": {"image": None, "version": present.rpartition(":")[2]}})
        cluster.wait_ready(timeout_s=400)
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "skipping", load.acked, partitions=4)
    assert [name for name, uid in pods_of(cluster).items() if before[name] == uid] == kept
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {present}


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
