"""The chart `walrus`: its values are the spec of a WalrusCluster; what it renders is one that the operator takes."""

import re
from typing import Any

import pytest
from cases import CASES, Case
from pod_security import violations
from rendering import ChartError, Helm, Manifest
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.topic import parse_topic

POOL = {"name": "general", "storage": {"claim": {"size": "10Gi"}}}


def cluster(helm: Helm, **values: Any) -> Manifest:
    return helm.render("walrus", values, release="orders", namespace="shop").one("WalrusCluster")


@pytest.mark.parametrize("case", [case for case in CASES if case.chart == "walrus"], ids=lambda case: case.name)
def test_the_operator_parses_what_is_rendered(case: Case, helm: Helm) -> None:
    rendered = helm.render(case.chart, case.values, release=case.release, namespace=case.namespace)
    parse_spec(rendered.one("WalrusCluster")["spec"])
    topics = [parse_topic(found["spec"]) for found in rendered.manifests if found["kind"] == "WalrusTopic"]
    assert len(topics) == len(case.values.get("topics", []))


def topics(helm: Helm, *specs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The specs of the topics that are rendered, by the names of their resources."""
    rendered = helm.render("walrus", {"topics": list(specs)}, release="orders", namespace="shop")
    return {one["metadata"]["name"]: one["spec"] for one in rendered.manifests if one["kind"] == "WalrusTopic"}


def test_each_topic_is_a_resource_of_the_release_and_names_its_cluster(helm: Helm) -> None:
    assert topics(helm, {"name": "billing", "partitions": 3}, {"name": "trips"}) == {
        "orders-billing": {"cluster": "orders", "name": "billing", "partitions": 3},
        "orders-trips": {"cluster": "orders", "name": "trips"},
    }


def test_large_numbers_stay_numbers(helm: Helm) -> None:
    settings = {"retention.ms": 604_800_000, "segment.bytes": 1 << 40}
    (spec,) = topics(helm, {"name": "t", "configs": settings, "segments": {"maxEntries": 1 << 40}}).values()
    assert parse_topic(spec).settings()["segment.bytes"] == str(1 << 40)
    assert (spec["configs"], spec["segments"]) == (settings, {"maxEntries": 1 << 40})


def test_topics_of_any_name_have_resources_that_differ(helm: Helm) -> None:
    names = ["a-b", "a_b", "A-b", "a.b", "_", "-", "x" * 249]
    specs = [{"name": name} for name in names] + [{"name": "a-b", "org": "acme"}, {"name": "acme.a-b"}]
    made = topics(helm, *specs)
    assert len(made) == len(specs)
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) < 253 for name in made)


def test_the_cluster_is_called_like_the_release_or_as_wanted(helm: Helm) -> None:
    assert cluster(helm)["metadata"]["name"] == "orders"
    assert cluster(helm, nameOverride="trips")["metadata"]["name"] == "trips"


def test_without_version_and_image_the_brokers_are_of_the_charts_version(helm: Helm) -> None:
    assert cluster(helm)["spec"]["version"] == "0.1.0"
    assert cluster(helm, version="9.9")["spec"]["version"] == "9.9"
    own = cluster(helm, image="registry.example/n:dev")["spec"]
    assert (own["image"], own.get("version")) == ("registry.example/n:dev", None)


def pod_of_the_test(helm: Helm, **values: Any) -> Manifest | None:
    rendered = helm.render("walrus", values, release="orders", namespace="shop")
    return next((one for one in rendered.manifests if one["kind"] == "Pod"), None)


@pytest.mark.parametrize(
    ("listeners", "port"),
    [
        ([], 9090),
        ([{"name": "grpc", "port": 9190}], 9190),
        ([{"name": "kafka"}, {"name": "in", "protocol": "grpc"}], 9090),
        ([{"name": "grpc", "type": "NodePort", "admin": True}], 9090),
        ([{"name": "grpc", "type": "NodePort"}], None),
        ([{"name": "grpc", "org": "acme"}], None),
        ([{"name": "kafka"}], None),
    ],
)
def test_a_record_is_written_and_read_where_clients_inside_come_in_by_grpc(
    listeners: list[dict[str, Any]], port: int | None, helm: Helm
) -> None:
    pod = pod_of_the_test(helm, **({"listeners": listeners} if listeners else {}))
    assert (pod is None) == (port is None)
    if pod is not None:
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        assert violations(pod["spec"]) == []
        told = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
        assert told["WALRUS_BOOTSTRAP"] == f"orders.shop.svc:{port}"


def test_the_image_of_the_test_is_that_of_the_brokers(helm: Helm) -> None:
    images = [
        pod["spec"]["containers"][0]["image"]
        for values in ({}, {"version": "9.9"}, {"image": "registry.example/n:dev"})
        if (pod := pod_of_the_test(helm, **values)) is not None
    ]
    assert images == ["walrus/walrus-node:0.1.0", "walrus/walrus-node:9.9", "registry.example/n:dev"]


def test_values_that_are_not_of_the_spec_stay_out_of_it(helm: Helm) -> None:
    assert set(cluster(helm, nameOverride="trips")["spec"]) == {"pools", "replication", "version"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 3}, "replicas"),
        ({"pools": []}, "pools"),
        ({"pools": [{"name": "general"}]}, "storage"),
        ({"pools": [POOL | {"backend": "floppy"}]}, "backend"),
        ({"pools": [POOL | {"replicas": 0}]}, "replicas"),
        ({"pools": [POOL | {"storage": {"claim": {"size": 10}}}]}, "size"),
        ({"replication": {"factor": 8}}, "factor"),
        ({"segments": {"maxEntries": 0}}, "maxEntries"),
        ({"segments": {"maxAge": 90}}, "maxAge"),
        ({"fsync": {"mode": "sometimes"}}, "mode"),
        ({"listeners": [{"name": "kafka", "type": "Ingress"}]}, "type"),
        ({"listeners": [{"name": "kafka", "tls": True}]}, "tls"),
        ({"listeners": [{"name": "kafka", "port": 80}]}, "port"),
        ({"deletionPolicy": "Forget"}, "deletionPolicy"),
        ({"topics": [{"partitions": 3}]}, "name"),
        ({"topics": [{"name": "t", "partitions": 0}]}, "partitions"),
        ({"topics": [{"name": "t", "cluster": "other"}]}, "cluster"),
        ({"topics": [{"name": "t", "retain": "1h"}]}, "retain"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str, helm: Helm) -> None:
    with pytest.raises(ChartError, match=named):
        cluster(helm, **values)


def test_a_name_that_no_service_can_bear_is_refused_with_a_sentence(helm: Helm) -> None:
    with pytest.raises(ChartError, match=r"My\.Name cannot be the name of a WalrusCluster.* use small letters"):
        cluster(helm, nameOverride="My.Name")
