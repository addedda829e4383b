"""The network of a broker that is to go is cut while it hands over: it stays until all it had is elsewhere."""

from harness.kube.cluster import Cluster, cut_off
from harness.kube.kubectl import NewNamespace, Object
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench

SLOW = {"dynamic": {"copies.bytes_per_second": 4 << 20}}


def test_a_broker_that_is_cut_off_during_its_drain_leaves_only_when_it_is_empty(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("cut-off"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    segments = {"maxBytes": "4Mi", "checkInterval": "1s"}
    cluster.kubectl.patch("wc", "orders", {"spec": {"deletionPolicy": "Delete", "config": SLOW, "segments": segments}})
    cluster.set_replicas(4)
    cluster.wait_ready()
    workbench.fill(cluster.bootstrap, "filled", 96, partitions=4)
    cluster.wait_replicated()
    goes = cluster.pods()[-1]
    name = goes["metadata"]["name"]
    with workbench.producing(cluster.bootstrap, "cut", partitions=4) as load:
        load.wait_for_more(2_000)
        cluster.set_replicas(3)
        cluster.wait_for("the drain", lambda found: found["status"]["phase"] == "Draining")
        with cut_off(goes):
            cluster.wait_for("a broker that is away", lambda found: state_of(found, name) == "Away")
            load.wait_for_more(2_000)
            assert name in cluster.members()
            assert name in {pod["metadata"]["name"] for pod in cluster.pods()}
        cluster.wait_ready(timeout_s=400)
        load.wait_for_more(2_000)
    assert len(cluster.members()) == 3
    workbench.check(cluster.bootstrap, "cut", load.acked, partitions=4)
    cluster.wait_replicated()


def state_of(found: Object, name: str) -> str | None:
    """What the status says of a member."""
    members = found["status"].get("members", ())
    return next((str(member["state"]) for member in members if member["name"] == name), None)
