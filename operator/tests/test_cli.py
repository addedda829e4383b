"""`kubectl walrus`: what it prints of a cluster that is simulated, over HTTP, and that it only reads."""

import json
import tarfile

import pytest
import yaml
from driving import Operator, converge, settle_topics
from examples import SMALLEST, changed, with_pool
from simbrokers import SimRelease
from simhttp import Kubernetes, kubeconfig, run
from test_shrinking import FIVE, filled
from test_shrinking import started as started_with
from test_topics import BILLING, started
from walrus_client.cli.exit_codes import Failed
from walrus_operator.api.releases import RELEASES
from walrus_operator.cli import told
from walrus_operator.cli.difference import Seen, difference
from walrus_operator.plan.actions import Gate


@pytest.fixture
def kube():
    return started()


@pytest.fixture
def server(kube, tmp_path, monkeypatch):
    made = Kubernetes(kube)
    made.forbidden.add("portforward")
    kubeconfig(made, tmp_path, monkeypatch)
    yield made
    made.close()


def test_status_shows_clusters_and_one_of_them_whole(server):
    assert "orders-general-0" in run("status")
    whole = run("status", "orders")
    assert whole.count("Serving") >= 3
    assert "StorageHealthy" in whole
    (found,) = json.loads(run("status", "-o", "json"))
    assert found["status"]["readyReplicas"] == 3
    assert all(path.startswith("/apis/walrus.dev/v1alpha1/namespaces/shop/") for path in server.asked)


def test_a_cluster_that_is_not_there_is_told_with_those_that_are(server):
    with pytest.raises(Failed, match="no WalrusCluster of that name in this namespace: there are orders"):
        run("status", "order")
    server.forbidden.add("walrusclusters")
    with pytest.raises(Failed, match="walrusclusters is forbidden"):
        run("status")


def test_a_context_that_there_is_not_is_told(server):
    with pytest.raises(Failed, match="the kubeconfig cannot be used"):
        run("status", "--context", "nowhere")


def test_explain_says_what_comes_next_what_holds_it_up_and_who_can_lift_that(server, kube):
    assert run("explain", "orders").splitlines() == [
        "orders: Running.",
        "Nothing is to be done, and nothing is waited for.",
    ]
    kube.stuck.add("orders-general-3")
    kube.put("orders", with_pool(SMALLEST, replicas=5))
    converge(kube)
    said = run("explain", "orders")
    assert "Held up by PodPending: " in said
    assert "Who can lift it: it opens by itself when all goes well" in said
    assert "Broker orders-general-3 is Pending" in said
    kube.put("orders", with_pool(SMALLEST, replicas=2))
    assert "has not looked at the present spec yet" in run("explain", "orders")
    converge(kube)
    said = run("explain", "orders")
    assert "SpecAccepted is False (ShrinkRefused)" in said
    assert "whoever writes the spec" in said
    kube.put("orders", SMALLEST, annotations={"walrus.dev/pause": "moving house"})
    converge(kube)
    assert "It is paused (moving house): kubectl annotate wc orders walrus.dev/pause- goes on." in run(
        "explain", "orders"
    )


def test_until_when_a_version_can_go_back_is_explained_and_a_diff_says_when_it_cannot(server, kube, tmp_path):
    level = RELEASES[-1].level + 1
    kube.releases["walrus/walrus-node:later"] = SimRelease(level)
    kube.put("orders", changed(SMALLEST, version="later", updatePolicy={"finalize": "Manual"}))
    converge(kube)
    assert (
        f"The cluster uses level {level - 1} and all brokers know {level}: version can go back until: kubectl annotate"
        f" wc orders walrus.dev/finalize={level}" in run("explain", "orders")
    )
    back = changed(SMALLEST, version=RELEASES[-1].version)
    assert "Refused" not in planned(tmp_path, back)
    kube.put("orders", changed(SMALLEST, version="later"))
    converge(kube)
    assert "can go back" not in run("explain", "orders")
    assert "Refused (ReleaseRefused)" in planned(tmp_path, back)


def test_every_gate_has_somebody_who_can_lift_it():
    assert all("does not know" not in told.lifted_by(gate) for gate in Gate)
    assert "does not know the gate" in told.lifted_by("OfTomorrow")


def test_topics_are_shown_with_why_they_are_not_ready(server, kube):
    kube.put_topic("billing", BILLING)
    kube.put_topic("wrong", changed(BILLING, configs={"retention.mss": 1}))
    kube.put_topic("other", changed(BILLING, cluster="bills"))
    settle_topics(kube)
    said = run("topics", "orders")
    assert "default/billing" in said
    assert "the nearest name is retention.ms" in said
    assert "bills" not in said
    assert "bills" in run("topics")


def test_a_report_has_yaml_and_logs_and_no_secret(server, kube):
    kube.put_topic("billing", BILLING)
    pod = next(found for ref, found in kube.objects.items() if ref.kind == "Pod")
    pod["spec"]["containers"][0]["env"].append({"name": "PASSWORD", "value": "hunter2"})
    pod["metadata"].setdefault("annotations", {})["kubectl.kubernetes.io/last-applied-configuration"] = "hunter2"
    server.forbidden.add("events")
    path = run("report", "orders").splitlines()[0]
    with tarfile.open(path) as bundle:
        names = {one.name.partition("/")[2]: one for one in bundle.getmembers()}
        texts = {name: bundle.extractfile(one).read().decode() for name, one in names.items()}
    assert {"walrusclusters.yaml", "walrustopics.yaml", "pods.yaml", "statefulsets.yaml"} <= texts.keys()
    assert texts["logs/orders-general-0.log"] == "a line of orders-general-0\n"
    assert "events is forbidden" in texts["not-read.txt"]
    secret = next(found for ref, found in kube.objects.items() if ref.kind == "Secret")["data"]["secret"]
    assert not [name for name, text in texts.items() if secret in text or "hunter2" in text]
    assert "PASSWORD" in texts["pods.yaml"]
    assert not [asked for asked in server.asked if "secrets" in asked]
    assert oct(names["pods.yaml"].mode) == "0o600"


def planned(tmp_path, spec, name="orders"):
    """What `diff` says of a spec."""
    manifest = {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": name}, "spec": spec}
    (tmp_path / "wanted.yaml").write_text(yaml.safe_dump_all([manifest, {"kind": "Namespace"}, None]))
    return run("diff", "-f", str(tmp_path / "wanted.yaml"))


def test_diff_says_what_the_operator_would_do_and_writes_nothing(server, kube, tmp_path):
    nothing, *unasked = planned(tmp_path, SMALLEST).splitlines()
    assert nothing == "Nothing would be done."
    assert [line.split(" (")[0] for line in unasked] == [
        f"Not asked, and taken as the status tells: orders-general-{ordinal}" for ordinal in range(3)
    ]
    before = kube.writes
    grown = planned(tmp_path, with_pool(SMALLEST, replicas=5))
    assert "-  replicas: 3\n+  replicas: 5\n" in grown
    assert "Then, one in each pass: Grow pool general to 4 brokers" in grown
    rolled = planned(tmp_path, changed(SMALLEST, version="2.0.0"))
    assert "At once: Update StatefulSet orders-general" in rolled
    assert "Pods that restart, one after the other: orders-general-0, orders-general-1, orders-general-2" in rolled
    refused = planned(tmp_path, with_pool(SMALLEST, replicas=2))
    assert "Refused (ShrinkRefused)" in refused
    assert "Nothing of it would be begun" in refused
    assert "Refused (Invalid): spec.pools.0.storage" in planned(tmp_path, {"version": "1", "pools": [{"name": "a"}]})
    made = planned(tmp_path, SMALLEST, "fresh")
    assert "WalrusCluster fresh is not there: it would be made." in made
    assert "At once: Create StatefulSet fresh-general" in made
    assert kube.writes == before
    assert not [asked for asked in server.asked if "secrets" in asked]


def test_diff_says_whether_the_disks_that_stay_have_room():
    kube = started_with(FIVE)
    filled(kube, free=40, held=40)
    lines = difference(Seen(Operator(kube).look()), SMALLEST)
    assert any("Refused (ShrinkRefused): the disks of the brokers that stay would be 87 % full" in one for one in lines)


def test_a_file_without_a_cluster_is_refused(server, tmp_path):
    (tmp_path / "empty.yaml").write_text("kind: Namespace\n---\nkind: WalrusCluster\nmetadata: 1\nspec: {}\n")
    with pytest.raises(Failed, match="has no WalrusCluster"):
        run("diff", "-f", str(tmp_path / "empty.yaml"))
    (tmp_path / "empty.yaml").write_text("{")
    with pytest.raises(Failed, match="is no YAML"):
        run("diff", "-f", str(tmp_path / "empty.yaml"))
