"""Copies and generated files are as their sources say: `make charts` writes them."""

from typing import Any

import generate
import pytest
import yaml
from rendering import Helm


@pytest.fixture(scope="module")
def sources() -> dict[Any, str]:
    return generate.generated()


def test_no_generated_file_differs_from_its_source(sources: dict[Any, str]) -> None:
    stale = [str(path.relative_to(generate.ROOT)) for path, text in sources.items() if not same(path, text)]
    assert stale == [], "`make charts` writes them again"


def test_no_generated_file_has_lost_its_source(sources: dict[Any, str]) -> None:
    there = [path for path in generate.OPERATOR_FILES.rglob("*") if path.is_file()]
    assert set(there) <= set(sources)


def test_the_roles_grant_exactly_what_the_operator_says_it_uses(sources: dict[Any, str], helm: Helm) -> None:
    table = yaml.safe_load(sources[generate.OPERATOR_FILES / "rbac.yaml"])
    rendered = helm.render("walrus-operator", {}, release="walrus-operator", namespace="walrus-system")
    granted = [m["rules"] for m in rendered.manifests if m["kind"].endswith("Role")]
    assert granted == [table["watched"], table["watched"], table["unwatched"], table["nodes"], table["own"]]


def test_the_definitions_of_a_release_are_those_of_the_repository(helm: Helm) -> None:
    rendered = helm.render("walrus-operator", {}, release="walrus-operator", namespace="walrus-system")
    for source in generate.CRDS.glob("*.yaml"):
        wanted = yaml.safe_load(source.read_text())
        (found,) = [m for m in rendered.manifests if m["metadata"]["name"] == wanted["metadata"]["name"]]
        assert found["spec"] == wanted["spec"]


def same(path: Any, text: str) -> bool:
    return path.exists() and path.read_text() == text
