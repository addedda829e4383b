"""Brokers come and go while records are written, and nothing that was acknowledged is lost."""

import pytest
from harness.kube.cluster import Cluster
from harness.kube.figures import note_pauses, timed
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench


@pytest.mark.usefixtures("quiet")
def test_three_brokers_become_five_and_three_and_five_again_under_load(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("elastic"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"deletionPolicy": "Delete"}})
    cluster.wait_ready()
    first = {pod["metadata"]["uid"] for pod in cluster.pods()}
    with workbench.producing(cluster.bootstrap, "elastic", partitions=4) as load:
        load.wait_for_more(2_000)
        with timed("three brokers become five and three again, under load", limit_s=120):
            cluster.set_replicas(5)
            cluster.wait_ready(timeout_s=400)
            load.wait_for_more(2_000)
            cluster.set_replicas(3)
            cluster.wait_ready(timeout_s=400)
        assert len(cluster.members()) == 3
        assert {pod["metadata"]["uid"] for pod in cluster.pods()} == first, "the others were not touched"
        cluster.wait_for("claims of those that went", lambda _: len(cluster.claims()) == 3)
        load.wait_for_more(2_000)
        cluster.set_replicas(5)
        cluster.wait_ready(timeout_s=400)
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "elastic", load.acked, partitions=4)
    note_pauses("3 -> 5 -> 3 -> 5", load.pauses_s, load.machine)
    cluster.wait_replicated()
    assert len(cluster.members()) == 5
