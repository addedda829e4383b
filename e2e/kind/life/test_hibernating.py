"""All brokers of a cluster stop and come back together, and nothing of theirs goes."""

from harness.kube.cluster import Cluster
from harness.kube.figures import timed
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench


def test_a_cluster_sleeps_and_wakes_with_all_that_it_had(new_namespace: NewNamespace, workbench: Workbench) -> None:
    cluster = Cluster(new_namespace("asleep"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "asleep", partitions=4) as load:
        load.wait_for_more(2_000)
    kept = kept_of(cluster)
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"hibernate": True}})
    with timed("three brokers stop together"):
        cluster.wait_for("no pod", lambda found: found["status"]["phase"] == "Hibernated" and not cluster.pods())
    assert kept_of(cluster) == kept
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"hibernate": False}})
    with timed("three brokers come back together"):
        cluster.wait_ready()
    assert kept_of(cluster) == kept
    workbench.check(cluster.bootstrap, "asleep", load.acked, partitions=4)
    with workbench.producing(cluster.bootstrap, "awake", partitions=4) as load:
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "awake", load.acked, partitions=4)


def kept_of(cluster: Cluster) -> set[str]:
    """Claims and Services, each as the one that it is."""
    return {found["metadata"]["uid"] for found in (*cluster.claims(), *cluster.kubectl.list("services"))}
