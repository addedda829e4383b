"""Both charts: a cluster as a release, and the operator gone for a while."""

from harness.kube.cluster import Cluster
from harness.kube.installed import Installed
from harness.kube.kubectl import Kubectl, NewNamespace, helm
from harness.kube.repository import CHARTS
from harness.kube.workbench import Workbench


def test_a_cluster_is_a_release(new_namespace: NewNamespace, workbench: Workbench) -> None:
    cluster = Cluster(new_namespace("released"), "trips")
    chart = ("trips", str(CHARTS / "walrus"), "--namespace", "released")
    pool = "pools[0].name=general,pools[0].replicas=1,pools[0].storage.claim.size=1Gi"
    helm("install", *chart, "--set", f"{pool},replication.factor=1")
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "rides", producers=1) as load:
        load.wait_for_more(500)
    workbench.check(cluster.bootstrap, "rides", load.acked)
    helm("uninstall", "trips", "--namespace", "released", "--wait")
    assert cluster.kubectl.find("wc", "trips") is None


def test_brokers_and_resources_outlive_an_operator_that_is_uninstalled(
    operator: Installed, orders: Cluster, workbench: Workbench
) -> None:
    before = {pod["metadata"]["uid"] for pod in orders.pods()}
    with workbench.producing(orders.bootstrap, "unattended", producers=1) as load:
        load.wait_for_more(500)
        operator.uninstall()
        load.wait_for_more(500)
        assert Kubectl("default").find("crd", "walrusclusters.walrus.dev") is not None
        assert orders.resource()["spec"]["pools"][0]["replicas"] == 3
        operator.install()
        orders.wait_ready()
    workbench.check(orders.bootstrap, "unattended", load.acked)
    assert {pod["metadata"]["uid"] for pod in orders.pods()} == before
