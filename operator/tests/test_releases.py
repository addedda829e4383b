"""Another release of the operator restarts nobody: pods restart for what users change."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml
from driving import Operator, condition, converge, status
from examples import POOLS, SMALLEST, changed
from simkube import SimKube
from walrus_operator.api.cluster import parse_spec
from walrus_operator.desired import statefulset
from walrus_operator.desired.build import image_of
from walrus_operator.desired.names import RENDERED_FROM, REVISION
from walrus_operator.desired.statefulset import PodInputs, pod_inputs
from walrus_operator.desired.template import carried_over
from walrus_operator.objects import Ref

FORMER = Path(__file__).parent / "data" / "objects-of-2026-11-24.yaml"
SET = Ref("StatefulSet", "shop", "orders-general")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def rendered_by_another_release(kube, **fields):
    """As if a release that knows other inputs had made the pods."""
    found = kube.objects[SET]
    told = json.loads(found["metadata"]["annotations"][RENDERED_FROM]) | fields
    inputs = PodInputs.parse(json.dumps(told))
    found["metadata"]["annotations"][RENDERED_FROM] = inputs.text()
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [*container["env"], {"name": "WALRUS_FUTURE", "value": "1"}]
    for template in (found["spec"]["template"], *kube.pods().values()):
        template["metadata"]["annotations"][REVISION] = inputs.revision()


def test_the_pods_of_the_former_release_are_as_they_shall_be():
    spec = parse_spec(POOLS)
    wanted = {f"orders-{p.name}": pod_inputs(spec, p, image_of(spec, "walrus/walrus-node")) for p in spec.pools}
    found = [made for made in yaml.safe_load_all(FORMER.read_text()) if made["kind"] == "StatefulSet"]
    assert len(found) == 3
    for made in found:
        inputs = wanted[made["metadata"]["name"]]
        assert made["metadata"]["annotations"][RENDERED_FROM] == inputs.text()
        assert made["spec"]["template"]["metadata"]["annotations"][REVISION] == inputs.revision()


@dataclass(frozen=True)
class Later(PodInputs):
    """A release that knows one input more."""

    secret: dict[str, str] = field(default_factory=dict)


def test_an_input_that_a_new_release_adds_restarts_nobody_until_a_user_sets_it(monkeypatch):
    before = pod_inputs(parse_spec(SMALLEST), parse_spec(SMALLEST).pools[0], "i")
    monkeypatch.setattr(statefulset, "PodInputs", Later)
    after = Later(**vars(before))
    assert after.revision() == before.revision()
    assert Later.parse(before.text()) == after
    assert replace(after, secret={"name": "s"}).revision() != before.revision()


def test_brokers_are_made_anew_with_the_secret_of_a_registry_and_stay_where_nobody_names_one():
    """Their image could come only from a registry that is open to all: one more field, and it restarts nobody else."""
    assert "image_pull_secrets" not in pod_inputs(parse_spec(SMALLEST), parse_spec(SMALLEST).pools[0], "i").text()
    kube = started()
    before = uids(kube)
    kube.put("orders", changed(SMALLEST, imagePullSecrets=[{"name": "registry"}]))
    converge(kube)
    assert kube.objects[SET]["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert not set(uids(kube).values()) & set(before.values())
    assert condition(kube, "Ready")["status"] == "True"


def test_an_older_operator_takes_what_a_newer_one_has_made_as_it_is():
    kube = started()
    rendered_by_another_release(kube, future={"a": 1})
    before, template = uids(kube), json.dumps(kube.objects[SET]["spec"]["template"])
    converge(kube)
    assert uids(kube) == before
    assert json.dumps(kube.objects[SET]["spec"]["template"]) == template
    assert json.loads(kube.objects[SET]["metadata"]["annotations"][RENDERED_FROM])["future"] == {"a": 1}
    assert condition(kube, "Ready")["status"] == "True"
    assert Operator(kube).once().plan.settled


def test_what_a_newer_operator_knew_stays_when_a_user_changes_something_else():
    kube = started()
    rendered_by_another_release(kube, future={"a": 1})
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    told = json.loads(kube.objects[SET]["metadata"]["annotations"][RENDERED_FROM])
    assert (told["future"], told["image"]) == ({"a": 1}, "walrus/walrus-node:2.0.0")
    for pod in kube.pods().values():
        container = pod["spec"]["containers"][0]
        assert {"name": "WALRUS_FUTURE", "value": "1"} in container["env"]
        assert container["image"] == "walrus/walrus-node:2.0.0"
    assert status(kube)["pools"][0]["updated"] == 3
    assert condition(kube, "Ready")["status"] == "True"


def test_of_a_template_that_a_newer_operator_made_only_what_is_known_here_changes():
    found = {
        "image": "a",
        "env": [{"name": "A", "value": "1"}, {"name": "NEW", "value": "n"}, {"name": "GONE", "value": "x"}],
        "args": ["a"],
        "new": {"b": 1},
        "tolerations": [{"key": "k"}],
    }
    before = {
        "image": "a",
        "env": [{"name": "A", "value": "1"}, {"name": "GONE", "value": "x"}],
        "args": ["a"],
        "tolerations": [{"key": "k"}],
    }
    now = {"image": "b", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}], "args": ["b"]}
    assert carried_over(found, before=before, now=now) == {
        "image": "b",
        "env": [{"name": "A", "value": "2"}, {"name": "NEW", "value": "n"}, {"name": "B", "value": "3"}],
        "args": ["b"],
        "new": {"b": 1},
    }
    assert carried_over(found, before=before, now=before) == found


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"image": 1}', "{"])
def test_what_nobody_can_read_is_written_anew(text):
    kube = started()
    kube.objects[SET]["metadata"]["annotations"][RENDERED_FROM] = text
    converge(kube)
    assert json.loads(kube.objects[SET]["metadata"]["annotations"][RENDERED_FROM])["backend"] == "mmap"
    assert condition(kube, "Ready")["status"] == "True"
