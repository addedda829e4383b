"""Both charts: a cluster as a release, and the operator gone for a while."""

import re
import shlex

import pytest
from harness.kube.cluster import Cluster
from harness.kube.installed import Installed
from harness.kube.kubectl import CommandError, Kubectl, NewNamespace, helm
from harness.kube.repository import CHARTS, ROOT
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


def test_brokers_outlive_an_operator_that_is_uninstalled_and_one_elsewhere_says_that_it_does_not_watch_them(
    operator: Installed, orders: Cluster, workbench: Workbench
) -> None:
    """It moves as docs/guides/uninstall.md says; `orders` is in no namespace that is watched then."""
    before = {pod["metadata"]["uid"] for pod in orders.pods()}
    with workbench.producing(orders.bootstrap, "unattended", producers=1) as load:
        load.wait_for_more(500)
        operator.uninstall()
        load.wait_for_more(500)
        assert orders.resource()["spec"]["pools"][0]["replicas"] == 3
        try:
            install_elsewhere()
            definition = Kubectl("default").get("crd", "walrusclusters.walrus.dev")
            assert definition["metadata"]["annotations"]["meta.helm.sh/release-namespace"] == "streams"
            orders.kubectl.wait("wc/orders", "jsonpath={.status.phase}=NotWatched", timeout_s=90)
            assert orders.resource()["status"]["clusterId"]
            assert phase_of_a_new_cluster(orders.kubectl) == "NotWatched"
        finally:
            helm("uninstall", "walrus-operator", "--namespace", "streams", "--ignore-not-found", "--wait")
            Kubectl("streams")("delete", "namespace", "streams", "--ignore-not-found", "--wait=false")
            operator.install()
        orders.kubectl.wait("wc/orders", "jsonpath={.status.phase}=Running", timeout_s=90)
        orders.wait_ready()
    workbench.check(orders.bootstrap, "unattended", load.acked)
    assert {pod["metadata"]["uid"] for pod in orders.pods()} == before


def install_elsewhere() -> None:
    """Runs the command of the guide."""
    guide = (ROOT / "docs/guides/uninstall.md").read_text()
    (command,) = re.findall(r"^helm (install .* --take-ownership)$", guide, re.MULTILINE)
    helm(*shlex.split(command.replace("charts/", f"{CHARTS}/")), "--wait", "--timeout", "180s")


def phase_of_a_new_cluster(kubectl: Kubectl) -> str:
    """What the definition says of a cluster that no operator has seen."""
    wanted = {
        "apiVersion": "walrus.dev/v1alpha1",
        "kind": "WalrusCluster",
        "metadata": {"name": "unseen"},
        "spec": {"version": "0.1.0", "pools": [{"name": "general", "storage": {"claim": {"size": "1Gi"}}}]},
    }
    kubectl.apply(wanted)
    phase: str = kubectl.get("wc", "unseen")["status"]["phase"]
    kubectl("delete", "wc", "unseen")
    return phase


def test_a_first_install_that_watches_a_namespace_which_is_not_there_says_so(operator: Installed) -> None:
    """Its own namespace is not there yet either, which once was taken for: no cluster is asked."""
    chart = ("second", str(CHARTS / "walrus-operator"), "--namespace", "not-there-yet", "--create-namespace")
    with pytest.raises(
        CommandError, match="names nowhere, which is no namespace here: kubectl create namespace nowhere"
    ):
        helm("install", *chart, "--set", "crds.install=false,watch.namespaces={nowhere}")
    assert Kubectl("default").find("namespace", "not-there-yet") is None
