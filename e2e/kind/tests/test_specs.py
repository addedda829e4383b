"""The API server takes and refuses what operator/tests/data/specs.yaml says, and says why."""

from typing import Any

import pytest
import yaml
from harness.kube.installed import Installed
from harness.kube.kubectl import CommandError, Kubectl, NewNamespace
from harness.kube.repository import EXAMPLES, ROOT

Case = dict[str, Any]
CASES: dict[str, list[Case]] = yaml.safe_load((ROOT / "operator/tests/data/specs.yaml").read_text())


@pytest.fixture(scope="module")
def specs(operator: Installed, new_namespace: NewNamespace) -> Kubectl:
    return new_namespace("specs")


def cluster_of(case: Case, spec: dict[str, Any]) -> dict[str, Any]:
    """Paused: the operator makes nothing of it, and its status is that of the case."""
    metadata = {"name": case.get("name", "orders"), "annotations": {"walrus.dev/pause": "a case of specs.yaml"}}
    return {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": metadata, "spec": spec}


def asked(specs: Kubectl, case: Case) -> None:
    """Asks the API server; raises CommandError with what it says where it refuses."""
    wanted = yaml.safe_dump(cluster_of(case, case["spec"]))
    if "was" not in case:
        specs("apply", "--dry-run=server", "-f", "-", stdin=wanted)
        return
    former = cluster_of(case, case["was"])
    specs.apply(former)
    try:
        if "status" in case:
            patch = yaml.safe_dump({"status": case["status"]})
            specs("patch", "wc", former["metadata"]["name"], "--subresource=status", "--type=merge", "--patch", patch)
        specs("apply", "--dry-run=server", "-f", "-", stdin=wanted)
    finally:
        specs("delete", "wc", former["metadata"]["name"])


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["case"])
def test_a_spec_is_accepted(specs: Kubectl, case: Case) -> None:
    asked(specs, case)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["case"])
def test_a_spec_is_refused_with_a_sentence(specs: Kubectl, case: Case) -> None:
    with pytest.raises(CommandError) as refused:
        asked(specs, case)
    assert case["says"] in refused.value.said


def test_an_unknown_field_is_refused(specs: Kubectl) -> None:
    case = CASES["accepted"][0]
    with pytest.raises(CommandError, match="unknown field"):
        asked(specs, {**case, "spec": case["spec"] | {"replicas": 3}})


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_of_the_docs_is_accepted(specs: Kubectl, example) -> None:
    for each in yaml.safe_load_all(example.read_text()):
        if each["kind"] == "WalrusCluster":
            each["metadata"].pop("namespace", None)
            each["metadata"]["name"] = "example"
            specs("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(each))
