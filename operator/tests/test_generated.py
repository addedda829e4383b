"""What is generated is what is committed: `python -m walrus_operator crds` writes it anew."""

import re
from pathlib import Path

import pytest
from examples import EXAMPLES
from pydantic import ValidationError
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.crdgen import crd, definitions, topic_crd, values_schema
from walrus_operator.runtime.metrics import Metrics

ROOT = Path(__file__).parents[2]


def nodes(schema, path="spec"):
    """Every schema within a schema."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}.{key}")


def test_the_definitions_are_the_committed_ones():
    assert {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")} == definitions()


@pytest.mark.parametrize("crd", [crd, topic_crd])
def test_the_crd_is_structural(crd):
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in nodes(schema):
        assert not set(node) & {"$ref", "$defs", "title", "const", "oneOf", "discriminator"}, path
        if "x-kubernetes-int-or-string" in node:
            continue
        assert "anyOf" not in node, path
        assert isinstance(node["type"], str), path
        assert node.get("additionalProperties") is not False, path
        assert "default" not in node or node["default"] is not None, path


@pytest.mark.parametrize("crd", [crd, topic_crd])
def test_everything_a_user_writes_is_described_and_bounded(crd):
    spec = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for path, node in nodes(spec):
        if "x-kubernetes-int-or-string" in node or path.endswith(("items", "additionalProperties")):
            continue
        assert node.get("description"), path
        if node["type"] == "array":
            assert "maxItems" in node, path
            assert "x-kubernetes-list-type" in node, path
        if node["type"] == "string" and "enum" not in node:
            assert "maxLength" in node, path


def test_the_definitions_stay_small():
    assert all(len(text) < 200 * 1024 for text in definitions().values())


def test_the_values_of_the_chart_are_the_spec_and_a_name():
    schema = values_schema()
    spec = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["properties"]) == {*spec["properties"], "nameOverride", "global", "topics"}
    topic = topic_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["properties"]["topics"]["items"]["properties"]) == {*topic["properties"]} - {"cluster"}
    assert "x-kubernetes" not in str(schema)
    assert "$ref" not in str(schema)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_parses(name):
    assert parse_spec(EXAMPLES[name]).pools


def test_a_field_that_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="backup"):
        parse_spec({**EXAMPLES["smallest"], "backup": True})


def test_the_page_of_metrics_names_each_and_no_other():
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    told = set(re.findall(r"^\| `(walrus_operator_\w+)`", page, re.MULTILINE))
    assert told == {metric.name for metric in Metrics().registry.collect() if metric.name.startswith("walrus_")}
