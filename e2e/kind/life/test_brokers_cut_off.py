"""The network of a broker is cut while another one, or it itself, hands over what it has: no copy is given up early."""

import pytest
from harness.kube.cluster import Cluster, cut_off
from harness.kube.kubectl import NewNamespace, Object
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench

PARTITIONS = 4
SLOW = {"dynamic": {"copies.bytes_per_second": 1 << 20}}


@pytest.fixture
def draining(new_namespace: NewNamespace, workbench: Workbench, request: pytest.FixtureRequest) -> Cluster:
    """Four brokers that store 96 MiB and make copies so slowly that a drain takes longer than what is done to it."""
    cluster = Cluster(new_namespace(request.param), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    segments = {"maxBytes": "4Mi", "checkInterval": "1s"}
    cluster.kubectl.patch("wc", "orders", {"spec": {"deletionPolicy": "Delete", "config": SLOW, "segments": segments}})
    cluster.set_replicas(4)
    cluster.wait_ready()
    workbench.fill(cluster.bootstrap, "filled", 96, partitions=PARTITIONS)
    cluster.wait_replicated()
    return cluster


@pytest.mark.parametrize("draining", ["cut-receiver"], indirect=True)
def test_a_broker_stays_as_long_as_one_that_takes_its_copies_is_cut_off(
    draining: Cluster, workbench: Workbench
) -> None:
    takes, *_, goes = draining.pods()
    with workbench.producing(draining.bootstrap, "cut", partitions=PARTITIONS) as load:
        load.wait_for_more(2_000)
        begin_drain(draining)
        with cut_off(takes):
            draining.wait_for("a broker that is away", lambda found: state_of(found, name_of(takes)) == "Away")
            load.wait_for_more(2_000)
            assert name_of(goes) in draining.members()
            assert name_of(goes) in {name_of(pod) for pod in draining.pods()}
        load.wait_for_more(2_000)
        set_pace(draining, 64 << 20)
        draining.wait_ready(timeout_s=400)
    assert name_of(goes) not in draining.members()
    workbench.check(draining.bootstrap, "cut", load.acked, partitions=PARTITIONS)
    draining.wait_replicated()


@pytest.mark.parametrize("draining", ["cut-leaver"], indirect=True)
def test_a_broker_that_is_cut_off_while_it_goes_takes_nothing_along(draining: Cluster, workbench: Workbench) -> None:
    """What it had, the others have as well, and copies of that are made without it."""
    goes = draining.pods()[-1]
    with workbench.producing(draining.bootstrap, "cut", partitions=PARTITIONS) as load:
        load.wait_for_more(2_000)
        begin_drain(draining)
        with cut_off(goes):
            draining.wait_for("a broker that is away", lambda found: state_of(found, name_of(goes)) == "Away")
            set_pace(draining, 64 << 20)
            load.wait_for_more(2_000)
        draining.wait_ready(timeout_s=400)
        load.wait_for_more(2_000)
    assert len(draining.members()) == len(draining.pods()) == len(draining.claims()) == 3
    workbench.check(draining.bootstrap, "cut", load.acked, partitions=PARTITIONS)
    draining.wait_replicated()


def begin_drain(cluster: Cluster) -> None:
    """The last of its brokers has begun to go."""
    cluster.set_replicas(3)
    cluster.wait_for("the drain", lambda found: found["status"]["phase"] == "Shrinking")


def name_of(pod: Object) -> str:
    """The name of a pod, and of the member in it."""
    return str(pod["metadata"]["name"])


def set_pace(cluster: Cluster, bytes_per_second: int) -> None:
    """Sets how fast copies may be made."""
    dynamic = {"copies.bytes_per_second": bytes_per_second}
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"config": {"dynamic": dynamic}}})


def state_of(found: Object, name: str) -> str | None:
    """What the status says of a member."""
    members = found["status"].get("members", ())
    return next((str(member["state"]) for member in members if member["name"] == name), None)
