"""The manifests are those in `golden/`, and keep what they promise. WALRUS_WRITE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from examples import EXAMPLES, OUTSIDE, POOLS, SMALLEST, TUNED, changed, with_pool
from walrus_operator.api.cluster import parse_spec
from walrus_operator.desired.build import Bootstrap, Facts, PoolFacts, build, image_of
from walrus_operator.desired.config import entries
from walrus_operator.desired.manifest import Owner
from walrus_operator.desired.names import Names
from walrus_operator.desired.statefulset import pod_inputs

LISTENERS = OUTSIDE["listeners"]
GOLDEN = Path(__file__).parent / "golden"


def manifests(spec, *, bootstrap=False, name="orders"):
    parsed = parse_spec(spec)
    owner = Owner(Names("shop", name), "0c5f3a1e-0000-4000-8000-000000000001")
    image = image_of(parsed, "walrus/walrus-node")
    pools = {
        pool.name: PoolFacts(pod_inputs(parsed, pool, image, owner.names.secret), pool.replicas, pool.replicas)
        for pool in parsed.pools
    }
    founder = Bootstrap("orders-general-0") if bootstrap else None
    return build(parsed, Facts(owner, pools, founder, 1, operator_namespace="walrus-system"))


def template(manifest):
    return manifest["spec"]["template"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_manifests_are_the_golden_ones(name):
    made = manifests(EXAMPLES[name], bootstrap=name == "smallest")
    text = yaml.safe_dump_all(made, sort_keys=False, width=120)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("WALRUS_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_kubernetes_takes_the_manifests(name):
    """By its own schemas; an API server says the same in the end-to-end tests."""
    for made in manifests(EXAMPLES[name], bootstrap=True):
        kubernetes_validate.validate(made, "1.36", strict=True)


@pytest.mark.parametrize(
    "other",
    [
        changed(OUTSIDE, segments={"maxEntries": 9}),
        changed(OUTSIDE, config={"dynamic": {"copies.moves_max": 3, "log.level": "debug"}}),
        changed(OUTSIDE, deletionPolicy="Delete"),
        changed(OUTSIDE, replication={"factor": 1}),
        changed(OUTSIDE, listeners=[one | {"type": "LoadBalancer"} if "type" in one else one for one in LISTENERS]),
        with_pool(OUTSIDE, replicas=7),
    ],
)
def test_what_can_change_while_brokers_run_is_not_in_their_pods(other):
    assert template(manifests(other)[-1]) == template(manifests(OUTSIDE)[-1])


def test_the_pods_do_not_change_once_the_cluster_is_founded():
    founding, founded = manifests(SMALLEST, bootstrap=True), manifests(SMALLEST)
    assert [made for made in founding if made["metadata"]["name"] != "orders-bootstrap"] == founded


def test_what_users_add_to_pods_never_stands_above_what_the_operator_sets():
    (made,) = (one for one in manifests(TUNED) if one["kind"] == "StatefulSet")
    pod = template(made)
    assert pod["metadata"]["labels"].items() >= {"example.com/team": "streams", "walrus.dev/pool": "general"}.items()
    assert pod["metadata"]["annotations"]["example.com/owner"] == "someone"
    assert made["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["priorityClassName"] == "important"
    assert pod["spec"]["affinity"] == TUNED["pools"][0]["affinity"]
    names = [one["name"] for one in pod["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert {"ACCOUNT", "MALLOC_ARENA_MAX", "WALRUS_FSYNC"} <= set(names)


def test_the_platform_says_as_whom_brokers_run_and_they_stay_restricted():
    told = template(manifests(TUNED)[-1])["spec"]["securityContext"]
    assert told == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_brokers_in_folders_of_nodes_stay_apart_whatever_else_is_asked_of_their_places():
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}}
    made = manifests(with_pool(POOLS, 2, affinity={**apart, "podAffinity": {}}))[-1]
    told = template(made)["spec"]["affinity"]
    terms = told["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "rack"]
    assert told["podAffinity"] == {}


def test_the_order_of_variables_means_nothing_to_brokers():
    backwards = with_pool(TUNED, env=TUNED["pools"][0]["env"][::-1])
    assert template(manifests(backwards)[-1]) == template(manifests(TUNED)[-1])


def policy(spec):
    """Which ports who reaches, by the manifest; everybody is None."""
    (made,) = (one for one in manifests(spec) if one["kind"] == "NetworkPolicy")
    assert made["spec"]["policyTypes"] == ["Ingress"]
    return [(rule.get("from"), [one["port"] for one in rule.get("ports", ())]) for rule in made["spec"]["ingress"]]


BROKERS = {"podSelector": {"matchLabels": Names("shop", "orders").selector()}}
OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "walrus-system"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "walrus", "app.kubernetes.io/component": "operator"}},
}


def test_only_brokers_reach_raft_and_peers_and_only_the_operator_the_admin_service_besides():
    assert policy(SMALLEST) == [([BROKERS], []), ([OPERATOR], [9091]), (None, [8088]), (None, [8080, 9090, 9092])]
    outside = [port for _, ports in policy(OUTSIDE) for port in ports]
    assert {9094, 9095} <= set(outside)
    assert not {6000, 6001} & set(outside)


def test_who_reaches_metrics_and_listeners_is_said_and_nobody_is_not_everybody():
    peer = {"podSelector": {"matchLabels": {"app": "a"}}}
    told = policy(changed(SMALLEST, networkPolicy={"adminFrom": [peer], "metricsFrom": [], "listenersFrom": [peer]}))
    assert told == [([BROKERS], []), ([OPERATOR, peer], [9091]), ([peer], [8080, 9090, 9092])]


def test_every_object_is_labelled_owned_and_hashed():
    for made in manifests(POOLS, bootstrap=True):
        assert made["metadata"]["labels"]["walrus.dev/cluster"] == "orders"
        assert [reference["uid"] for reference in made["metadata"]["ownerReferences"]] == [
            "0c5f3a1e-0000-4000-8000-000000000001"
        ]
        assert made["metadata"]["annotations"]["walrus.dev/hash"]


def test_pods_keep_to_restricted_pod_security_unless_they_use_folders_of_nodes():
    for made in manifests(POOLS):
        if made["kind"] != "StatefulSet":
            continue
        pod = template(made)["spec"]
        allowed = made["metadata"]["name"] == "orders-folders"
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert any("hostPath" in volume for volume in pod["volumes"]) == allowed
        assert bool(pod.get("initContainers")) == allowed
        for container in pod["containers"]:
            context = dict(container["securityContext"])
            ring = context.pop("seccompProfile", None)
            assert context == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            wanted = {"type": "Localhost", "localhostProfile": "walrus/io-uring.json"}
            assert ring == (wanted if made["metadata"]["name"] == "orders-nvme" else None)


def test_the_rollover_policy_is_told_in_numbers():
    assert entries(parse_spec(OUTSIDE)) == {
        "segments.max_entries": 500,
        "segments.max_bytes": 64 * 2**20,
        "segments.max_age_ms": 12 * 3_600_000,
        "segments.check_interval_ms": 250,
    }
    assert entries(parse_spec(SMALLEST))["segments.max_age_ms"] == 0


@pytest.mark.parametrize(
    ("default", "image"),
    [
        ("walrus/walrus-node", "walrus/walrus-node:1.0.0"),
        ("walrus/walrus-node:0.1.0", "walrus/walrus-node:1.0.0"),
        ("registry.example:5000/walrus-node", "registry.example:5000/walrus-node:1.0.0"),
        ("registry.example:5000/walrus-node:0.1.0@sha256:0", "registry.example:5000/walrus-node:1.0.0"),
        ("registry.example:5000/walrus-node:1.0.0@sha256:0", "registry.example:5000/walrus-node:1.0.0@sha256:0"),
    ],
)
def test_the_image_of_a_version(default, image):
    assert image_of(parse_spec({**SMALLEST, "version": "1.0.0"}), default) == image


def environment(made):
    return {one["name"]: one.get("value") for one in template(made)["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("listener", "variable", "value"),
    [
        ({"name": "kafka"}, "WALRUS_KAFKA_LISTENER", None),
        ({"name": "kafka", "admin": False}, "WALRUS_KAFKA_LISTENER", "kafka=0.0.0.0:9092,org=default,admin=off"),
        ({"name": "text", "port": 8180}, "WALRUS_TEXT_LISTENER", "text=0.0.0.0:8180,org=default"),
        (
            {"name": "text", "type": "NodePort", "admin": True},
            "WALRUS_TEXT_LISTENER",
            None,  # its clients are told of no broker
        ),
        (
            {"name": "a", "protocol": "grpc", "port": 9190, "org": "acme"},
            "WALRUS_GRPC_LISTENER",
            "a=0.0.0.0:9190,org=acme",
        ),
        (
            {"name": "a", "protocol": "kafka", "port": 9094, "type": "NodePort"},
            "WALRUS_KAFKA_LISTENER",
            "a=0.0.0.0:9094,org=default,advertise=file,admin=off",
        ),
        (
            {"name": "a", "protocol": "kafka", "port": 9094, "type": "LoadBalancer", "admin": True},
            "WALRUS_KAFKA_LISTENER",
            "a=0.0.0.0:9094,org=default,advertise=file",
        ),
    ],
)
def test_brokers_are_told_of_what_they_do_not_have_anyway(listener, variable, value):
    made = manifests(changed(SMALLEST, listeners=[listener]))[-1]
    assert environment(made).get(variable) == value
    is_told = value is not None and "file" in value
    assert ("WALRUS_ADVERTISED_FILE" in environment(made)) == is_told
    assert any("downwardAPI" in volume for volume in template(made)["spec"]["volumes"]) == is_told


def test_the_order_of_listeners_means_nothing_to_brokers():
    backwards = changed(OUTSIDE, listeners=LISTENERS[::-1])
    assert template(manifests(backwards)[-1]) == template(manifests(OUTSIDE)[-1])
