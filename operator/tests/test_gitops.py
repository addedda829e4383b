"""What the guide tells GitOps tools is so: health from conditions, nothing of theirs on what the operator makes."""

import json
from pathlib import Path

import pytest
import yaml
from cel import Context, evaluate
from driving import Operator, converge, settle_topics, topic_status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from test_topics import BILLING, started
from walrus_operator.api.crdgen import crd, topic_crd
from walrus_operator.objects import CLUSTER, TOPIC, Ref

GUIDE = (Path(__file__).parents[2] / "docs/guides/gitops.md").read_text()
CHECKS = {one["kind"]: one for one in yaml.safe_load(GUIDE.split("```yaml\n")[1].split("```")[0])["healthCheckExprs"]}
APPLIED_MAX = 262_144
"""Bytes of annotations that Kubernetes takes: client-side apply writes the whole object into one."""


def health(found):
    """What Flux makes of a resource: the first of the checks that holds, in its order."""
    context = Context(variables={name: found.get(name, {}) for name in ("metadata", "spec", "status")})
    for name in ("inProgress", "failed", "current"):
        if evaluate(CHECKS[found["kind"]][name], context):
            return name
    return "inProgress"


def cluster(kube):
    return kube.objects[Ref(CLUSTER.name, "shop", "orders")]


def test_a_cluster_is_in_progress_until_it_serves_and_again_with_each_change():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    assert health(cluster(kube)) == "inProgress"
    Operator(kube).once()
    assert health(cluster(kube)) == "inProgress"
    converge(kube)
    assert health(cluster(kube)) == "current"
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    assert health(cluster(kube)) == "inProgress"
    Operator(kube).once()
    assert health(cluster(kube)) == "inProgress"
    converge(kube)
    assert health(cluster(kube)) == "current"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (with_pool(SMALLEST, replicas=2), "failed"),
        (with_pool(SMALLEST, storage={"claim": {"size": "2Gi"}}), "failed"),
        (changed(SMALLEST, hibernate=True), "current"),
    ],
    ids=["too few brokers", "another size", "asleep"],
)
def test_a_refused_spec_fails_and_a_cluster_that_hibernates_is_there(spec, expected):
    kube = started()
    kube.put("orders", spec)
    converge(kube)
    assert health(cluster(kube)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (BILLING, "current"),
        ({**BILLING, "configs": {"retention.mss": 1}}, "failed"),
        ({**BILLING, "managementPolicy": "ObserveOnly"}, "inProgress"),
    ],
    ids=["made", "wrong setting", "observed and missing"],
)
def test_a_topic_tells_its_health_as_well(spec, expected):
    kube = started()
    kube.put_topic("billing", spec)
    assert health(kube.objects[Ref(TOPIC.name, "shop", "billing")]) == "inProgress"
    settle_topics(kube)
    assert health(kube.objects[Ref(TOPIC.name, "shop", "billing")]) == expected, topic_status(kube)


def test_labels_of_a_gitops_tool_are_not_handed_on_and_its_spec_is_not_written():
    """Else it would take what the operator makes for its own, and prune it."""
    kube = SimKube()
    kube.put("orders", SMALLEST, annotations={"argocd.argoproj.io/tracking-id": "shop:walrus.dev/WalrusCluster:orders"})
    cluster(kube)["metadata"]["labels"] = {
        "app.kubernetes.io/instance": "shop",
        "kustomize.toolkit.fluxcd.io/name": "shop",
    }
    converge(kube)
    for ref, found in kube.objects.items():
        if ref.kind != CLUSTER.name:
            told = {**found["metadata"].get("labels", {}), **found["metadata"].get("annotations", {})}
            assert not [name for name in told if "argoproj" in name or "fluxcd" in name], ref
            assert told.get("app.kubernetes.io/instance") != "shop", ref
    assert cluster(kube)["spec"] == SMALLEST


@pytest.mark.parametrize("definition", [crd(), topic_crd()], ids=lambda one: one["spec"]["names"]["kind"])
def test_definitions_are_small_enough_for_client_side_apply(definition):
    assert len(json.dumps(definition)) < APPLIED_MAX / 2


def test_defaults_lie_inside_of_lists_as_the_guide_says():
    pools = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["pools"]
    assert any("default" in field for field in pools["items"]["properties"].values())
