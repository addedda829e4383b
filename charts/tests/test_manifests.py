"""Every release that is rendered is accepted by Kubernetes' schemas, restricted, and granted no more than it names."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from cases import CASES, Case
from pod_security import violations
from rendering import ChartError, Helm, Manifest, Rendered

KUBERNETES = "1.36"
CHART = Path(__file__).parents[1] / "walrus-operator"

OPERATOR = [case for case in CASES if case.chart == "walrus-operator"]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def rendered(case: Case, helm: Helm) -> Rendered:
    return render(case, helm)


def render(case: Case, helm: Helm) -> Rendered:
    return helm.render(case.chart, case.values, release=case.release, namespace=case.namespace)


def operator(helm: Helm, **values: Any) -> Rendered:
    return helm.render("walrus-operator", values, release="walrus-operator", namespace="walrus-system")


def test_lint_finds_nothing(case: Case, helm: Helm) -> None:
    assert helm.lint(case.chart, case.values) == []


def test_kubernetes_schemas_accept_every_manifest(rendered: Rendered) -> None:
    for manifest in rendered.manifests:
        if not manifest["apiVersion"].startswith(("walrus.dev/", "monitoring.coreos.com/")):
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_every_manifest_is_in_its_namespace_and_says_whose_it_is(case: Case, rendered: Rendered) -> None:
    cluster_wide = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    for manifest in rendered.manifests:
        metadata = manifest["metadata"]
        assert ("namespace" in metadata) == (manifest["kind"] not in cluster_wide), manifest["kind"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == case.release


@pytest.mark.parametrize("case", OPERATOR, ids=lambda case: case.name)
def test_pods_are_restricted_whatever_the_values(case: Case, helm: Helm) -> None:
    spec = render(case, helm).one("Deployment")["spec"]["template"]["spec"]
    assert violations(spec) == []


@pytest.mark.parametrize(
    ("place", "key", "value", "rule"),
    [
        ("pod", "hostNetwork", True, "hostNetwork"),
        ("pod", "volumes", [{"name": "host", "hostPath": {"path": "/"}}], "volume host: hostPath"),
        ("pod", "securityContext", {"runAsNonRoot": True}, "operator: seccompProfile"),
        ("container", "privileged", True, "operator: privileged"),
        ("container", "allowPrivilegeEscalation", True, "operator: allowPrivilegeEscalation"),
        ("container", "capabilities", {}, "operator: capabilities.drop"),
        ("container", "capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "operator: capabilities.add"),
        ("container", "runAsNonRoot", False, "operator: runAsNonRoot"),
        ("container", "runAsUser", 0, "operator: runAsUser"),
        ("container", "readOnlyRootFilesystem", False, "operator: readOnlyRootFilesystem"),
    ],
)
def test_the_check_of_restricted_pods_can_fail(place: str, key: str, value: object, rule: str, helm: Helm) -> None:
    spec = operator(helm).one("Deployment")["spec"]["template"]["spec"]
    target = spec if place == "pod" else spec["containers"][0]["securityContext"]
    target[key] = value
    assert violations(spec) == [rule]


def test_standbys_are_spread_ready_and_evicted_one_at_a_time(helm: Helm) -> None:
    rendered = operator(helm)
    deployment, budget = rendered.one("Deployment")["spec"], rendered.one("PodDisruptionBudget")["spec"]
    assert (deployment["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert budget["selector"] == deployment["selector"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert all(one["labelSelector"] == deployment["selector"] for one in spread)
    # What makes a pod ready asks nothing of the lease, or `helm install --wait` would wait for standbys for ever.
    assert deployment["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_a_single_operator_may_be_evicted_at_any_time(helm: Helm) -> None:
    rendered = operator(helm, replicas=1)
    assert "PodDisruptionBudget" not in {one["kind"] for one in rendered.manifests}
    assert "topologySpreadConstraints" not in rendered.one("Deployment")["spec"]["template"]["spec"]


def test_logs_are_json_unless_text_is_wanted(helm: Helm) -> None:
    assert environment(operator(helm))["WALRUS_OPERATOR_LOG_FORMAT"] == "json"
    assert environment(operator(helm, logFormat="text"))["WALRUS_OPERATOR_LOG_FORMAT"] == "text"


def test_no_role_has_a_wildcard(rendered: Rendered) -> None:
    for manifest in rendered.manifests:
        for rule in manifest.get("rules", []):
            assert "*" not in [item for values in rule.values() for item in values], manifest["metadata"]["name"]
            assert rule["verbs"]
            assert rule["resources"]


def test_by_default_the_release_namespace_and_default_are_watched_and_a_mark_is_granted_outside(helm: Helm) -> None:
    rendered = operator(helm)
    assert environment(rendered)["WALRUS_OPERATOR_NAMESPACES"] == "walrus-system,default"
    assert granted(rendered) == [
        ("Role", "walrus-operator", "walrus-system"),
        ("Role", "walrus-operator", "default"),
        ("ClusterRole", "walrus-operator-unwatched", None),
        ("ClusterRole", "walrus-operator-nodes", None),
        ("Role", "walrus-operator-own", "walrus-system"),
    ]
    assert environment(rendered)["WALRUS_OPERATOR_MARKS_UNWATCHED"] == "true"


def test_a_value_takes_every_right_outside_of_the_watched_namespaces_away(helm: Helm) -> None:
    rendered = operator(helm, rbac={"clusterRole": False})
    assert "ClusterRole" not in {kind for kind, _, _ in granted(rendered)}
    assert environment(rendered)["WALRUS_OPERATOR_MARKS_UNWATCHED"] == "false"


def test_nodes_and_volumes_are_only_read(helm: Helm) -> None:
    rules = next(m for m in operator(helm).manifests if m["metadata"]["name"] == "walrus-operator-nodes")["rules"]
    assert {resource: rule["verbs"] for rule in rules for resource in rule["resources"]} == {
        "nodes": ["get", "list"],
        "persistentvolumes": ["get"],
        "customresourcedefinitions": ["get"],
    }


def test_the_release_namespace_alone_can_be_watched(helm: Helm) -> None:
    rendered = operator(helm, watch={"namespaces": []})
    assert environment(rendered)["WALRUS_OPERATOR_NAMESPACES"] == "walrus-system"
    assert {namespace for _, _, namespace in granted(rendered)} == {"walrus-system", None}


def test_each_watched_namespace_gets_the_same_role_once(helm: Helm) -> None:
    rendered = operator(helm, watch={"namespaces": ["orders", "walrus-system"]})
    assert environment(rendered)["WALRUS_OPERATOR_NAMESPACES"] == "walrus-system,orders"
    rules = {
        m["metadata"]["namespace"]: m["rules"]
        for m in rendered.manifests
        if m["kind"] == "Role" and m["metadata"]["name"] == "walrus-operator"
    }
    assert list(rules) == ["walrus-system", "orders"]
    assert rules["orders"] == rules["walrus-system"]


def test_to_watch_every_namespace_a_cluster_role_has_all_rights_and_marks_nothing(helm: Helm) -> None:
    rendered = operator(helm, watch={"all": True, "namespaces": ["orders"]})
    assert environment(rendered)["WALRUS_OPERATOR_NAMESPACES"] == "*"
    assert granted(rendered) == [
        ("ClusterRole", "walrus-operator", None),
        ("ClusterRole", "walrus-operator-nodes", None),
        ("Role", "walrus-operator-own", "walrus-system"),
    ]


def test_bindings_name_the_role_and_the_account_of_the_pods(helm: Helm) -> None:
    for case in OPERATOR:
        rendered = render(case, helm)
        account = rendered.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        made = {(m["kind"], m["metadata"]["name"]) for m in rendered.manifests}
        for binding in (m for m in rendered.manifests if m["kind"].endswith("Binding")):
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in made
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": case.namespace}]


def test_the_service_and_the_deployment_select_the_pods(helm: Helm) -> None:
    rendered = operator(helm, podLabels={"team": "streams"})
    deployment = rendered.one("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert rendered.one("Service")["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "walrus/walrus-operator:0.1.0"),
        ({"tag": "9.9"}, "walrus/walrus-operator:9.9"),
        ({"repository": "registry.example/o", "tag": "dev"}, "registry.example/o:dev"),
        ({"tag": "9.9", "digest": "sha256:" + "a" * 64}, "walrus/walrus-operator@sha256:" + "a" * 64),
    ],
)
def test_the_image_is_the_values_choice(image: dict[str, str], expected: str, helm: Helm) -> None:
    assert container(operator(helm, image=image))["image"] == expected


def test_the_image_of_the_brokers_is_handed_to_the_operator(helm: Helm) -> None:
    assert environment(operator(helm))["WALRUS_OPERATOR_DEFAULT_IMAGE"] == "walrus/walrus-node:0.1.0"
    rendered = operator(helm, nodeImage={"repository": "registry.example/n", "tag": "dev"})
    assert environment(rendered)["WALRUS_OPERATOR_DEFAULT_IMAGE"] == "registry.example/n:dev"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"imgae": {}}, "imgae"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"watch": {"namespaces": ["Not_A_Namespace"]}}, "namespaces"),
        ({"watch": {"all": "yes"}}, "all"),
        ({"replicas": 0}, "replicas"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"podSecurity": {"runAsUser": 0}}, "runAsUser"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str, helm: Helm) -> None:
    with pytest.raises(ChartError, match=named):
        operator(helm, **values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"watch": None}, "the value watch is null: leave it out to have its defaults"),
        ({"watch": {"namespaces": None}}, "the value watch.namespaces is null: write watch.namespaces="),
        ({"nodeImage": None}, "the value nodeImage is null"),
        ({"nameOverride": "My.Name"}, "the name walrus-operator-My.Name, made from .* use small letters"),
        ({"fullnameOverride": "my.name"}, "the name my.name, made from .* for example walrus-operator"),
    ],
)
def test_values_that_would_break_a_template_are_refused_with_a_sentence(
    values: dict[str, Any], sentence: str, helm: Helm
) -> None:
    with pytest.raises(ChartError, match=sentence):
        operator(helm, **values)


def test_without_a_user_of_its_own_the_pod_is_still_restricted(helm: Helm) -> None:
    rendered = operator(helm, podSecurity=None)
    assert rendered.one("Deployment")["spec"]["template"]["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_brokers_image_is_pinned_by_its_digest(helm: Helm) -> None:
    digest = "sha256:" + "b" * 64
    rendered = operator(helm, nodeImage={"digest": digest})
    assert environment(rendered)["WALRUS_OPERATOR_DEFAULT_IMAGE"] == f"walrus/walrus-node:0.1.0@{digest}"


def test_the_definitions_outlive_the_release_and_can_be_left_out(helm: Helm) -> None:
    definitions = [m for m in operator(helm).manifests if m["kind"] == "CustomResourceDefinition"]
    assert [m["metadata"]["name"] for m in definitions] == ["walrusclusters.walrus.dev", "walrustopics.walrus.dev"]
    assert {m["metadata"]["annotations"]["helm.sh/resource-policy"] for m in definitions} == {"keep"}
    without = operator(helm, crds={"install": False}).manifests
    assert "CustomResourceDefinition" not in {m["kind"] for m in without}


def granted(rendered: Rendered) -> list[tuple[str, str, str | None]]:
    """Kind, name and namespace of every role; each has its binding."""
    bound = {(m["roleRef"]["kind"], m["roleRef"]["name"]) for m in rendered.manifests if m["kind"].endswith("Binding")}
    named = [(m["kind"], m["metadata"]) for m in rendered.manifests if m["kind"].endswith("Role")]
    assert {(kind, metadata["name"]) for kind, metadata in named} == bound
    return [(kind, metadata["name"], metadata.get("namespace")) for kind, metadata in named]


def container(rendered: Rendered) -> Manifest:
    (only,) = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def environment(rendered: Rendered) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container(rendered)["env"]}


@pytest.mark.parametrize(
    ("watch", "namespace"),
    [({}, "default"), ({"namespaces": []}, "walrus-system"), ({"namespaces": ["trips"]}, "trips")],
)
def test_the_notes_make_a_cluster_where_the_tutorial_does_or_else_where_it_is_watched(
    watch: dict[str, Any], namespace: str, helm: Helm
) -> None:
    notes = operator(helm, watch=watch).notes
    assert f"kubectl -n {namespace} apply -f -" in notes
    assert f"kubectl -n {namespace} get wc orders --watch" in notes


def test_the_profile_of_io_uring_is_put_on_nodes_only_where_a_value_says_so(helm: Helm) -> None:
    assert "DaemonSet" not in {m["kind"] for m in operator(helm).manifests}
    rendered = operator(helm, seccompProfile={"install": True, "kubeletFolder": "/data/kubelet"})
    profile = next(m for m in rendered.manifests if m["metadata"]["name"] == "walrus-operator-seccomp")["data"]
    assert json.loads(profile["io-uring.json"]) == json.loads((CHART / "seccomp/io-uring.json").read_text())
    spec = rendered.one("DaemonSet")["spec"]["template"]["spec"]
    assert violations(spec) == ["volume seccomp: hostPath", "install: runAsNonRoot", "install: runAsUser"]
    assert spec["volumes"][1]["hostPath"]["path"] == "/data/kubelet/seccomp"
    assert spec["initContainers"][0]["command"][-1] == "/seccomp/walrus/io-uring.json"


def test_nobody_takes_the_pods_that_put_the_profile_on_nodes_for_the_operator(helm: Helm) -> None:
    rendered = operator(helm, seccompProfile={"install": True})
    labels = rendered.one("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        rendered.one("Deployment")["spec"]["selector"]["matchLabels"],
        rendered.one("Service")["spec"]["selector"],
        rendered.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert not selector.items() <= labels.items()
