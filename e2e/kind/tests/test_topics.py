"""A topic as a resource: made, changed, put right and deleted on a real Kubernetes, and what its API server refuses."""

import json
from typing import Any

import pytest
import yaml
from harness.kube.cluster import Cluster
from harness.kube.figures import timed
from harness.kube.kubectl import CommandError, Kubectl, NewNamespace, Object
from harness.kube.repository import EXAMPLES, ROOT
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

Case = dict[str, Any]
CASES: dict[str, list[Case]] = yaml.safe_load((ROOT / "operator/tests/data/topics.yaml").read_text())
MANY = 300


def condition(topic: Object, kind: str) -> Object:
    """A condition of the present generation; empty while the operator has not judged that generation."""
    for found in topic.get("status", {}).get("conditions", ()):
        if found["type"] == kind and found["observedGeneration"] == topic["metadata"]["generation"]:
            judged: Object = found
            return judged
    return {}


def is_ready(kubectl: Kubectl, name: str) -> bool:
    return condition(kubectl.get("wt", name), "Ready").get("status") == "True"


def wait_ready(kubectl: Kubectl, name: str, *, timeout_s: float = 60.0) -> None:
    wait_until(f"topic {name} is ready", lambda: is_ready(kubectl, name), timeout_s=timeout_s)


def topics_of(workbench: Workbench, orders: Cluster) -> dict[str, int]:
    """Partitions by topic, as clients see them."""
    listed = json.loads(workbench.walrus("topics", "--bootstrap", orders.bootstrap, "--output", "json"))
    return {topic["name"]: topic["partitions"] for topic in listed}


def test_a_topic_is_made_changed_put_right_and_deleted(orders: Cluster, workbench: Workbench) -> None:
    kubectl = orders.kubectl
    with timed("a WalrusTopic, from its apply to Ready", limit_s=2):
        kubectl("apply", "-f", str(EXAMPLES / "walrustopic.yaml"))
        wait_ready(kubectl, "billing")
    assert topics_of(workbench, orders)["billing"] == 6
    told = kubectl.get("wt", "billing")["status"]
    assert (told["name"], told["partitions"], told["replicationFactor"]) == ("default/billing", 6, 3)
    assert {row["name"]: row["value"] for row in told["settings"]}["retention.ms"] == str(7 * 24 * 3_600_000)
    assert "default/billing" in kubectl("get", "wt", "billing", "--no-headers")

    with workbench.producing(orders.bootstrap, "billing", producers=2) as load:
        load.wait_for_more(500)
        kubectl.patch("wt", "billing", {"spec": {"partitions": 8, "deletionPolicy": "Delete"}})
        wait_ready(kubectl, "billing")
        load.wait_for_more(500)
    assert topics_of(workbench, orders)["billing"] == 8

    workbench.walrus("topics", "alter", "billing", "retention.ms=7", "--bootstrap", orders.bootstrap)
    with timed("a setting that somebody changed, until it is put right"):
        wait_until(
            "the setting is put right",
            lambda: any("retention.ms" in event["message"] for event in events(kubectl, "Updated")),
            timeout_s=90,
            every_s=0.5,
        )

    with pytest.raises(CommandError, match="partitions are never taken away"):
        kubectl.patch("wt", "billing", {"spec": {"partitions": 4}})
    kubectl.patch("wt", "billing", {"spec": {"configs": {"retention.mss": 1}}})
    wait_until(
        "the setting is refused in the brokers' words",
        lambda: (
            "nearest name is retention.ms" in condition(kubectl.get("wt", "billing"), "Accepted").get("message", "")
        ),
    )

    kubectl("delete", "wt", "billing", "--timeout=60s")
    assert "billing" not in topics_of(workbench, orders)


def events(kubectl: Kubectl, reason: str) -> list[Object]:
    found = kubectl.list("events")
    return [event for event in found if event["reason"] == reason and event["involvedObject"]["kind"] == "WalrusTopic"]


def test_many_topics_are_ready_within_a_minute(orders: Cluster) -> None:
    kubectl = orders.kubectl
    topics = [
        {
            "apiVersion": "walrus.dev/v1alpha1",
            "kind": "WalrusTopic",
            "metadata": {"name": f"many-{number}", "labels": {"many": "true"}},
            "spec": {"cluster": "orders", "replicationFactor": 1, "deletionPolicy": "Delete"},
        }
        for number in range(MANY)
    ]
    kubectl.apply(*topics)
    with timed(f"{MANY} WalrusTopics, from the last apply to Ready"):
        kubectl("wait", "wt", "--selector=many", "--for=condition=Ready", "--timeout=60s")
    with timed(f"{MANY} WalrusTopics deleted with their topics"):
        kubectl("delete", "wt", "--selector=many", "--timeout=180s")


def test_a_namespace_goes_though_its_topics_have_a_finalizer(new_namespace: NewNamespace) -> None:
    kubectl = new_namespace("topics-gone")
    kubectl("apply", "-f", str(EXAMPLES / "walruscluster-development.yaml"))
    kubectl("wait", "wc/dev", "--for=condition=Ready", "--timeout=240s")
    topic = yaml.safe_load((EXAMPLES / "walrustopic.yaml").read_text())
    topic["spec"] = {"cluster": "dev", "deletionPolicy": "Delete"}
    kubectl.apply(topic)
    wait_ready(kubectl, "billing")
    assert kubectl.get("wt", "billing")["metadata"]["finalizers"] == ["walrus.dev/topic"]
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=180s")


@pytest.fixture(scope="module")
def specs(new_namespace: NewNamespace) -> Kubectl:
    """A namespace without a cluster."""
    return new_namespace("topic-specs")


def asked(specs: Kubectl, case: Case) -> None:
    """Asks the API server; raises CommandError with what it says where it refuses."""
    made = {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusTopic", "metadata": {"name": "case"}}
    wanted = yaml.safe_dump({**made, "spec": case["spec"]})
    if "was" not in case:
        specs("apply", "--dry-run=server", "-f", "-", stdin=wanted)
        return
    specs.apply({**made, "spec": case["was"]})
    try:
        if "status" in case:
            patch = yaml.safe_dump({"status": case["status"]})
            specs("patch", "wt", "case", "--subresource=status", "--type=merge", "--patch", patch)
        specs("apply", "--dry-run=server", "-f", "-", stdin=wanted)
    finally:
        specs("delete", "wt", "case")


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["case"])
def test_a_spec_is_accepted(specs: Kubectl, case: Case) -> None:
    asked(specs, case)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["case"])
def test_a_spec_is_refused_with_a_sentence(specs: Kubectl, case: Case) -> None:
    with pytest.raises(CommandError) as refused:
        asked(specs, case)
    assert case["says"] in refused.value.said
