"""`kubectl walrus doctor`: each thing that can be wrong is found, with the way out; a cluster that is well is well."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from driving import Operator, converge
from examples import SMALLEST, changed, with_pool
from simhttp import Kubernetes, kubeconfig, run
from test_departing_brokers import four  # noqa: F401 - a fixture
from test_holding import fill
from test_orders import DRAIN, disk_of
from test_replacing import lose_node, started
from walrus_client.cli.exit_codes import Failed
from walrus_operator import __version__
from walrus_operator.api.crdgen import crd, topic_crd
from walrus_operator.cli.examining import Facts, Verdict, examined
from walrus_operator.objects import CLAIM, CLUSTER, LEASE, POD, Ref
from walrus_operator.observe.pods import Pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = Ref(CLUSTER.name, "shop", "orders")
OPERATOR = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "walrus-operator-1",
        "namespace": "walrus-system",
        "uid": "operator",
        "labels": {"app.kubernetes.io/part-of": "walrus", "app.kubernetes.io/component": "operator"},
    },
    "spec": {
        "serviceAccountName": "walrus-operator",
        "containers": [{"image": f"walrus/walrus-operator:{__version__}", "env": []}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def lease(renewed=NOW, holder="walrus-operator-1"):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 20, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}"}
    metadata = {"name": "walrus-operator", "namespace": "walrus-system"}
    return {"kind": LEASE.name, "apiVersion": LEASE.api_version, "metadata": metadata, "spec": spec}


def facts(kube, **others):
    made = Facts(
        cluster=kube.objects[ORDERS],
        snapshot=Operator(kube).look(),
        troubles={},
        definitions={made["metadata"]["name"]: made for made in (crd(), topic_crd())},
        operator_namespace="walrus-system",
        lease=lease(),
        operators=[Pod.parse(OPERATOR)],
        lacking=[],
        now=NOW + timedelta(seconds=3),
        ahead_s=0.4,
        own_version=__version__,
        images={"walrus-operator-1": f"walrus/walrus-operator:{__version__}"},
    )
    return replace(made, **others)


def trouble(found):
    """What is not well, by check and verdict."""
    told = {}
    for one in examined(found):
        if one.verdict is not Verdict.OK:
            told[one.check, one.verdict] = f"{told.get((one.check, one.verdict), '')}{one.found} -> {one.way_out}\n"
    return told


def test_a_cluster_that_is_well_is_well_in_every_respect():
    findings = examined(facts(started()))
    assert [one.verdict for one in findings] == [Verdict.OK] * 14
    assert all(one.found for one in findings)


@pytest.mark.parametrize(
    ("others", "check", "verdict", "said"),
    [
        ({"definitions": {crd()["metadata"]["name"]: None}}, "definitions", "failed", "is not there"),
        ({"definitions": {crd()["metadata"]["name"]: "no right"}}, "definitions", "not seen", "no right"),
        ({"lease": None}, "operator", "failed", "there is no lease in namespace walrus-system"),
        ({"lease": "no right"}, "operator", "not seen", "no right"),
        ({"lease": lease(holder="")}, "operator", "failed", "no operator holds the lease"),
        ({"lease": lease(NOW - timedelta(minutes=5))}, "operator", "failed", "has not renewed its lease for 303 s"),
        ({"operators": "no right"}, "operator", "not seen", "who may read pods in namespace walrus-system"),
        ({"operators": [replace(Pod.parse(OPERATOR), ready=False)]}, "operator", "warning", "is not ready"),
        ({"lacking": ["patch pods"]}, "rights", "failed", "the operator may not: patch pods"),
        ({"lacking": "no right"}, "rights", "not seen", "no right"),
        ({"troubles": {"orders-general-0": "timed out"}}, "brokers", "failed", "orders-general-0 does not answer"),
        ({"troubles": {"orders-general-0": "403 Forbidden"}}, "brokers", "not seen", "pods/portforward"),
        ({"ahead_s": -60.0}, "clocks", "warning", "this machine is 60 s behind Kubernetes"),
        ({"lease": lease(NOW + timedelta(minutes=1))}, "clocks", "warning", "the operator is 57 s ahead of Kubernetes"),
        ({"images": {"o": "walrus/walrus-operator:9.9.9"}}, "versions", "warning", "o is of 9.9.9"),
        ({"images": {"o": "registry:5000/walrus-operator"}}, "versions", None, ""),
    ],
)
def test_what_is_wrong_around_a_cluster_is_found(others, check, verdict, said):
    found = trouble(facts(started(), **others))
    assert set(found) == ({(check, verdict)} if verdict else set())
    assert verdict is None or said in found[check, verdict]


def test_pods_claims_and_members_that_are_away_are_found():
    kube = started()
    lost = lose_node(kube, 1)
    kube.objects[Ref(CLAIM.name, "shop", "data-orders-general-2")]["status"] = {"phase": "Lost"}
    found = trouble(facts(kube))
    assert "orders-general-1 is not ready" in found["pods", "failed"]
    assert "data-orders-general-2 is Lost" in found["claims", "failed"]
    assert f"kubectl walrus replace orders {lost}" in found["members", "failed"]
    assert "held up by NodeLost" in found["conditions", "warning"]
    kube.remove(POD.name, "orders-general-0")
    kube.objects.pop(Ref(POD.name, "shop", "orders-general-0"))
    assert "orders-general-0 is not there" in trouble(facts(kube))["pods", "failed"]


def test_a_cluster_that_nobody_looks_after_is_found():
    kube = started()
    kube.put("orders", with_pool(SMALLEST, replicas=5))
    assert "a spec before the present one" in trouble(facts(kube))["looked after", "warning"]
    kube.objects[ORDERS]["status"] = {"phase": "NotWatched"}
    assert "no operator looks after" in trouble(facts(kube))["looked after", "failed"]


def test_full_disks_and_missing_copies_are_found():
    kube = started()
    fill(kube, "orders-general-1")
    look = kube.brokers.look

    async def lacking(host):
        return replace(await look(host), under_replicated=7, version=host)

    kube.brokers.look = lacking
    found = trouble(facts(kube))
    assert "the disk of orders-general-1 is 96 % full" in found["disks", "failed"]
    assert "7 segments lack copies" in found["copies", "failed"]
    assert "brokers of several versions" in found["versions", "warning"]


def test_no_leader_and_brokers_of_two_clusters_are_found():
    kube = started()
    look = kube.brokers.look

    async def apart(host):
        return replace(await look(host), role="Candidate", cluster_id=f"of-{host}", missing=("metadata",))

    kube.brokers.look = apart
    found = trouble(facts(kube))["brokers", "failed"]
    assert "no broker leads the metadata" in found
    assert "orders-general-0 lacks metadata" in found
    assert "brokers belong to different clusters" in found


def test_brokers_that_may_not_be_asked_are_no_failure_and_say_nothing_of_a_leader():
    kube = started()
    kube.down |= kube.pods().keys()
    found = facts(kube, troubles=dict.fromkeys(kube.pods(), "Handshake status 403 Forbidden"))
    assert set(trouble(found)) == {("brokers", "not seen")}


def test_a_claim_whose_disk_left_the_cluster_is_found_with_the_command_that_deletes_it():
    kube = started(4)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert "kubectl delete pvc data-orders-general-3" in trouble(facts(kube))["members", "warning"]


def test_orders_that_stand_are_told_and_a_spec_that_is_refused():
    kube = started(4)
    orders = {DRAIN: disk_of(kube, 1), "walrus.dev/pause": ""}
    kube.put("orders", with_pool(SMALLEST, replicas=2), annotations=orders)
    converge(kube)
    found = [one.found for one in examined(facts(kube)) if one.check == "orders"]
    assert found == ["walrus.dev/pause stands: no reason given", f"walrus.dev/drain stands: {orders[DRAIN]}"]
    kube.put("orders", with_pool(SMALLEST, replicas=2))
    converge(kube)
    assert "held up by ShrinkRefused" in trouble(facts(kube))["conditions", "failed"]


def test_a_cluster_that_hibernates_lacks_nothing_but_brokers_that_run():
    kube = started()
    kube.put("orders", changed(SMALLEST, hibernate=True))
    converge(kube)
    assert {check for check, _ in trouble(facts(kube))} == {"conditions"}


def wanted(spec):
    return {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.name, "metadata": {"name": "orders"}, "spec": spec}


@pytest.fixture
def reached(four, tmp_path, monkeypatch):  # noqa: F811
    """Real brokers behind a Kubernetes that forwards to them, and an operator that holds its lease."""
    cluster, kube, _ = four
    Operator(kube).once()
    server = Kubernetes(kube)
    server.forwards = {f"orders-general-{ordinal}": node.ports.admin for ordinal, node in enumerate(cluster.nodes)}
    for made in (crd(), topic_crd(), lease(datetime.now(UTC)), OPERATOR):
        kube.put_object({**made, "metadata": {"namespace": "", "labels": {}, **made["metadata"]}})
    kubeconfig(server, tmp_path, monkeypatch)
    yield server
    server.close()


def test_brokers_are_asked_by_port_forward_and_the_exit_code_says_whether_all_is_well(reached, tmp_path):
    findings = json.loads(run("doctor", "orders", "-o", "json"))
    assert [one for one in findings if one["verdict"] == "failed"] == []
    assert next(one["found"] for one in findings if one["check"] == "brokers").startswith("all that run answer")
    asked = [asked for asked in reached.asked if asked.endswith("portforward")]
    assert {asked.split("/")[-2] for asked in asked} == {f"orders-general-{ordinal}" for ordinal in range(4)}
    assert not [asked for asked in reached.asked if "secrets" in asked or asked.startswith("PATCH")]
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(wanted(SMALLEST)))
    planned = run("diff", "-f", "orders.yaml")
    assert "Then, one in each pass: Drain orders-general-3" in planned
    assert "Not asked" not in planned
    reached.lacking.add(("patch", "walrusclusters/status"))
    reached.forwards.pop("orders-general-2")
    reached.forbidden.add("persistentvolumeclaims")
    with pytest.raises(Failed, match=r"2 of \d+ findings are failures"):
        run("doctor", "orders")
    reached.forbidden |= {"portforward", "subjectaccessreviews", "leases"}
    said = run("doctor", "orders")
    assert "subjectaccessreviews is forbidden" in said
    assert "pods/portforward" in said
