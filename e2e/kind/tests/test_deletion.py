"""What stays when a WalrusCluster is deleted, and what comes back when it is made again."""

from harness.kube.cluster import LABEL, Cluster
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench


def test_a_cluster_made_again_finds_its_records_on_the_claims(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("retained"), "orders")
    example = str(EXAMPLES / "walruscluster.yaml")
    cluster.kubectl("apply", "-f", example)
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "kept", producers=2) as load:
        load.wait_for_more(1_000)
    identity = cluster.resource()["status"]["clusterId"]

    cluster.kubectl("delete", "wc", "orders", "--timeout=180s")
    cluster.kubectl("wait", "pod", f"--selector={LABEL}=orders", "--for=delete", "--timeout=180s")
    assert len(cluster.claims()) == 3

    cluster.kubectl("apply", "-f", example)
    cluster.wait_ready()
    assert cluster.resource()["status"]["clusterId"] == identity
    workbench.check(cluster.bootstrap, "kept", load.acked)
    with workbench.producing(cluster.bootstrap, "new", producers=1) as more:
        more.wait_for_more(500)
    workbench.check(cluster.bootstrap, "new", more.acked)


def test_with_deletion_policy_delete_the_claims_go_too(new_namespace: NewNamespace) -> None:
    cluster = Cluster(new_namespace("deleted"), "dev")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster-development.yaml"))
    cluster.wait_ready()
    assert len(cluster.claims()) == 1
    cluster.kubectl("delete", "wc", "dev", "--timeout=180s")
    cluster.kubectl("wait", "pvc", f"--selector={LABEL}=dev", "--for=delete", "--timeout=180s")
