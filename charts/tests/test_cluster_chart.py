"""The chart `walrus`: its values are the spec of a WalrusCluster; what it renders is one that the operator takes."""

from typing import Any

import pytest
from cases import CASES, Case
from rendering import ChartError, Helm, Manifest
from walrus_operator.api.cluster import parse_spec

POOL = {"name": "general", "storage": {"claim": {"size": "10Gi"}}}


def cluster(helm: Helm, **values: Any) -> Manifest:
    return helm.render("walrus", values, release="orders", namespace="shop").one("WalrusCluster")


@pytest.mark.parametrize("case", [case for case in CASES if case.chart == "walrus"], ids=lambda case: case.name)
def test_the_operator_parses_what_is_rendered(case: Case, helm: Helm) -> None:
    rendered = helm.render(case.chart, case.values, release=case.release, namespace=case.namespace)
    parse_spec(rendered.one("WalrusCluster")["spec"])


def test_the_cluster_is_called_like_the_release_or_as_wanted(helm: Helm) -> None:
    assert cluster(helm)["metadata"]["name"] == "orders"
    assert cluster(helm, nameOverride="trips")["metadata"]["name"] == "trips"


def test_without_version_and_image_the_brokers_are_of_the_charts_version(helm: Helm) -> None:
    assert cluster(helm)["spec"]["version"] == "0.1.0"
    assert cluster(helm, version="9.9")["spec"]["version"] == "9.9"
    own = cluster(helm, image="registry.example/n:dev")["spec"]
    assert (own["image"], own.get("version")) == ("registry.example/n:dev", None)


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
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str, helm: Helm) -> None:
    with pytest.raises(ChartError, match=named):
        cluster(helm, **values)


def test_a_name_that_no_service_can_bear_is_refused_with_a_sentence(helm: Helm) -> None:
    with pytest.raises(ChartError, match=r"My\.Name cannot be the name of a WalrusCluster.* use small letters"):
        cluster(helm, nameOverride="My.Name")
