"""Another spec restarts the brokers one after the other, while records are written."""

import pytest
from harness.kube.cluster import Cluster
from harness.kube.figures import note_pauses, timed
from harness.kube.workbench import Workbench


@pytest.mark.usefixtures("quiet")
def test_a_roll_under_load_loses_nothing_and_the_leader_comes_last(orders: Cluster, workbench: Workbench) -> None:
    orders.wait_ready()
    orders.wait_replicated()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.pods()}
    leader = orders.resource()["status"]["leader"]
    with workbench.producing(orders.bootstrap, "rolled", partitions=4) as load:
        load.wait_for_more(2_000)
        requests = orders.set_requests(memory="192Mi")
        with timed("three brokers restarted one after the other, under load", limit_s=45):
            orders.wait_ready(timeout_s=400)
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "rolled", load.acked, partitions=4)
    note_pauses("a roll", load.pauses_s, load.machine)
    pods = orders.pods()
    assert all(pod["spec"]["containers"][0]["resources"]["requests"] == requests for pod in pods)
    assert not set(before.values()) & {pod["metadata"]["uid"] for pod in pods}
    assert max(pods, key=lambda pod: pod["status"]["startTime"])["metadata"]["name"] == leader
    assert orders.resource()["status"]["pools"][0]["updated"] == 3
    orders.wait_replicated()
