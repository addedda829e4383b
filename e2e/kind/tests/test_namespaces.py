"""Namespaces that are watched by name: one lets brokers use folders of their machines, one takes the role away."""

import json
from collections.abc import Iterator

import pytest
from harness.kube.cluster import Cluster
from harness.kube.installed import RELEASE, Installed
from harness.kube.kubectl import Kubectl, NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

FOLDERS = EXAMPLES / "walruscluster-host-path.yaml"
DEVELOPMENT = str(EXAMPLES / "walruscluster-development.yaml")
CLOSED = "walrus_operator_namespace_closed"


@pytest.fixture(scope="module")
def folders() -> Iterator[Cluster]:
    """The cluster of the example, in the namespace that it makes for itself."""
    machines = Kubectl("default")
    for machine in machines.list("nodes", "!node-role.kubernetes.io/control-plane"):
        machines("label", "--overwrite", "node", machine["metadata"]["name"], "walrus.dev/disk=host")
    kubectl = Kubectl("walrus-host-path")
    kubectl("apply", "-f", str(FOLDERS))
    yield Cluster(kubectl, "trips")
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")


@pytest.fixture(scope="module", autouse=True)
def named(
    operator: Installed, workbench: Workbench, new_namespace: NewNamespace, folders: Cluster
) -> Iterator[dict[str, Kubectl]]:
    """The operator watches these namespaces and its own, and no other."""
    made = {name: new_namespace(name) for name in ("open", "closed")}
    operator.install(watched=("walrus-host-path", *made))
    yield made
    operator.install()


def test_records_outlive_the_pod_in_a_folder_of_its_machine(folders: Cluster, workbench: Workbench) -> None:
    folders.wait_ready()
    assert not folders.claims()
    assert all(each["backend"] == "direct" or each["backendReason"] for each in folders.resource()["status"]["brokers"])
    with workbench.producing(folders.bootstrap, "rides", producers=2) as load:
        load.wait_for_more(500)
        for victim in folders.pods():
            folders.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
            folders.wait_pod_replaced(victim)
            load.wait_for_more(500)
    workbench.check(folders.bootstrap, "rides", load.acked)


def test_a_namespace_whose_role_is_taken_away_stops_only_itself_and_is_back_with_it(
    operator: Installed, named: dict[str, Kubectl]
) -> None:
    """One of two answered 403: nothing was looked after anywhere, and the operator was killed after four minutes."""
    lasting, closed = (Cluster(named[name], "dev") for name in ("open", "closed"))
    binding = closed.kubectl.get("rolebinding", RELEASE)
    closed.kubectl("delete", "rolebinding", RELEASE)
    pod = operator.pod()["metadata"]["uid"]
    for cluster in (lasting, closed):
        cluster.kubectl("apply", "-f", DEVELOPMENT)
    lasting.wait_ready()
    (pool,) = lasting.resource()["spec"]["pools"]
    lasting.kubectl.patch("wc", "dev", {"spec": {"pools": [pool | {"replicas": 2}]}})
    lasting.wait_ready()
    wait_until(
        "the metric of a closed namespace", lambda: operator.metric(CLOSED, namespace="closed") == 1, timeout_s=90
    )
    assert operator.metric(CLOSED, namespace="open") == 0
    assert not closed.kubectl.list("statefulsets")

    given_back = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    metadata = {key: binding["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    closed.kubectl("create", "-f", "-", stdin=json.dumps(given_back | {"metadata": metadata}))
    closed.wait_ready()
    assert operator.metric(CLOSED, namespace="closed") == 0
    assert operator.pod()["metadata"]["uid"] == pod
    assert operator.pod()["status"]["containerStatuses"][0]["restartCount"] == 0
