"""Brokers in folders of their machines, in a namespace whose pod security allows it, and only there."""

import pytest
from harness.kube.cluster import Cluster
from harness.kube.installed import Installed
from harness.kube.kubectl import Kubectl
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench

EXAMPLE = EXAMPLES / "walruscluster-host-path.yaml"


@pytest.fixture
def cluster(operator: Installed):
    machines = Kubectl("default")
    for machine in machines.list("nodes", "!node-role.kubernetes.io/control-plane"):
        machines("label", "--overwrite", "node", machine["metadata"]["name"], "walrus.dev/disk=host")
    kubectl = Kubectl("walrus-host-path")
    yield Cluster(kubectl, "trips")
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")


def test_records_outlive_the_pod_in_a_folder_of_its_machine(cluster: Cluster, workbench: Workbench) -> None:
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    cluster.wait_ready()
    assert not cluster.claims()
    assert all(each["backend"] == "direct" or each["backendReason"] for each in cluster.resource()["status"]["brokers"])
    with workbench.producing(cluster.bootstrap, "rides", producers=2) as load:
        load.wait_for_more(500)
        for victim in cluster.pods():
            cluster.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
            cluster.wait_pod_replaced(victim)
            load.wait_for_more(500)
    workbench.check(cluster.bootstrap, "rides", load.acked)
