"""Every CEL rule of the topics' definition takes what it shall take and refuses what it shall refuse.

The same cases run against a real API server in the end-to-end tests, as those of clusters do.
"""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from test_rules import defaulted, named, outcomes, rules_in
from walrus_operator.api.crdgen import topic_crd
from walrus_operator.api.topic import parse_topic

CASES = yaml.safe_load((Path(__file__).parent / "data" / "topics.yaml").read_text())
ROOT = topic_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def asked(case):
    """Outcomes for a case of `topics.yaml`."""
    kept = {"status": case["status"]} if "status" in case else {}
    spec = ROOT["properties"]["spec"]
    value = {**kept, "spec": defaulted(spec, case["spec"])}
    old = {**kept, "spec": defaulted(spec, case["was"])} if "was" in case else None
    return list(outcomes(ROOT, value, old))


@pytest.mark.parametrize("case", CASES["accepted"], ids=named)
def test_accepted(case):
    assert [message for _, message, holds in asked(case) if not holds] == []
    assert parse_topic(case["spec"]).cluster == "orders"


@pytest.mark.parametrize("case", CASES["refused"], ids=named)
def test_refused(case):
    broken = [message for _, message, holds in asked(case) if not holds]
    if any(case["says"] in message for _, message in rules_in(ROOT)):
        assert any(case["says"] in message for message in broken)
    else:
        with pytest.raises(ValidationError, match=case["says"]):
            parse_topic(case["spec"])


def test_every_rule_has_met_both():
    met = {True: set(), False: set()}
    for case in CASES["accepted"] + CASES["refused"]:
        for rule, message, holds in asked(case):
            met[holds].add((rule, message))
    assert met[True] == met[False] == set(rules_in(ROOT))
