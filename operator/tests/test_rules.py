"""Every CEL rule of the CRD takes what it shall take and refuses what it shall refuse.

The same cases run against a real API server in the end-to-end tests; here the rules are evaluated one by one, so that
none can be there that no case ever met.
"""

from pathlib import Path

import pytest
import yaml
from cel import Context, evaluate
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.crdgen import crd
from walrus_operator.api.schema import RULES
from walrus_operator.api.units import bytes_of

CASES = yaml.safe_load((Path(__file__).parent / "data" / "specs.yaml").read_text())
ROOT = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def defaulted(schema, value):
    """What the API server adds before it looks at rules."""
    if isinstance(value, dict) and "properties" in schema:
        made = dict(value)
        for name, child in schema["properties"].items():
            if name not in made and "default" in child:
                made[name] = child["default"]
            if name in made:
                made[name] = defaulted(child, made[name])
        return made
    if isinstance(value, list):
        return [defaulted(schema["items"], item) for item in value]
    return value


def outcomes(schema, value, old):
    """(rule, message, whether it holds) of every rule that is asked about this value."""
    for rule in schema.get(RULES, ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        # The library of Kubernetes is not in the evaluator: its quantities become plain numbers.
        text = rule["rule"].replace(".compareTo(", " - (")
        context = Context(variables={"self": value, "oldSelf": old}, functions={"quantity": bytes_of, "sum": sum})
        yield rule["rule"], rule["message"], bool(evaluate(text, context))
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield from outcomes(child, value[name], old.get(name) if isinstance(old, dict) else None)
        if "additionalProperties" in schema:
            for name, item in value.items():
                yield from outcomes(schema["additionalProperties"], item, (old or {}).get(name))
    if isinstance(value, list) and "x-kubernetes-list-map-keys" in schema:
        key = schema["x-kubernetes-list-map-keys"][0]
        before = {item[key]: item for item in old or ()}
        for item in value:
            yield from outcomes(schema["items"], item, before.get(item[key]))
    elif isinstance(value, list):
        for item in value:
            yield from outcomes(schema["items"], item, None)


def asked(case):
    """Outcomes for a case of `specs.yaml`."""
    kept = {
        "metadata": {"name": case.get("name", "orders")},
        **({"status": case["status"]} if "status" in case else {}),
    }
    value = {**kept, "spec": defaulted(ROOT["properties"]["spec"], case["spec"])}
    old = {**kept, "spec": defaulted(ROOT["properties"]["spec"], case["was"])} if "was" in case else None
    return list(outcomes(ROOT, value, old))


def named(case):
    return case["case"]


@pytest.mark.parametrize("case", CASES["accepted"], ids=named)
def test_accepted(case):
    assert [message for _, message, holds in asked(case) if not holds] == []
    assert parse_spec(case["spec"]).pools


@pytest.mark.parametrize("case", CASES["refused"], ids=named)
def test_refused(case):
    broken = [message for _, message, holds in asked(case) if not holds]
    by_rule = any(case["says"] in message for _, message in rules_in(ROOT))
    assert any(case["says"] in message for message in broken) == by_rule


def test_every_rule_about_a_text_lets_kubernetes_know_how_long_it_may_be():
    """The API server did not take the definition: a rule about `string(self)` may take for ever, whatever maxLength."""

    def asked(schema):
        if schema.get("type") == "string":
            yield from (rule["rule"] for rule in schema.get(RULES, ()))
        inner = (schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict))
        for child in (*schema.get("properties", {}).values(), *inner):
            yield from asked(child)

    assert [rule for rule in asked(ROOT) if "string(self)" in rule] == []


def test_nobody_has_to_read_a_regular_expression():
    assert "pattern" not in str(crd())


def test_every_rule_has_met_both():
    met = {True: set(), False: set()}
    for case in CASES["accepted"] + CASES["refused"]:
        for rule, message, holds in asked(case):
            met[holds].add((rule, message))
    everything = set(rules_in(ROOT))
    assert met[True] == everything
    assert met[False] == everything


def rules_in(schema):
    """Every rule of a schema, with its message."""
    for rule in schema.get(RULES, ()):
        yield rule["rule"], rule["message"]
    for child in schema.get("properties", {}).values():
        yield from rules_in(child)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from rules_in(schema[inner])
