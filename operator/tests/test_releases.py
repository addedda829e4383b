"""Another release of the operator restarts nobody: pods restart for what users change."""

import json
import tomllib
from base64 import b64encode
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from driving import Operator, condition, converge, status
from examples import POOLS, SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.releases import RELEASES, Release, Wire
from walrus_operator.desired import statefulset
from walrus_operator.desired.build import image_of
from walrus_operator.desired.names import RENDERED_FROM, REVISION
from walrus_operator.desired.secret import is_mounted
from walrus_operator.desired.statefulset import PodInputs, pod_inputs
from walrus_operator.desired.template import carried_over
from walrus_operator.objects import CONFIG_MAP, SECRET, Ref
from walrus_operator.observe.snapshot import Snapshot

DATA = Path(__file__).parent / "data"
FORMER = {"objects-of-2026-11-24.yaml": "", "objects-of-2026-11-25.yaml": "orders-shared-secret"}
"""What earlier releases made of POOLS, and the Secret that those pods share."""
SET = Ref("StatefulSet", "shop", "orders-general")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def rendered_by_another_release(kube, **fields):
    """Makes the pods look like those of a release that knows other inputs."""
    found = kube.objects[SET]
    told = json.loads(found["metadata"]["annotations"][RENDERED_FROM]) | fields
    inputs = PodInputs.parse(json.dumps(told))
    found["metadata"]["annotations"][RENDERED_FROM] = inputs.text()
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [*container["env"], {"name": "WALRUS_FUTURE", "value": "1"}]
    for template in (found["spec"]["template"], *kube.pods().values()):
        template["metadata"]["annotations"][REVISION] = inputs.revision()


def former(file):
    return list(yaml.safe_load_all((DATA / file).read_text()))


def test_the_pods_of_former_releases_are_as_they_shall_be():
    spec = parse_spec(POOLS)
    image = image_of(spec, "walrus/walrus-node")
    for file, secret in FORMER.items():
        wanted = {f"orders-{pool.name}": pod_inputs(spec, pool, image, secret) for pool in spec.pools}
        found = [made for made in former(file) if made["kind"] == "StatefulSet"]
        assert len(found) == 3
        for made in found:
            inputs = wanted[made["metadata"]["name"]]
            assert made["metadata"]["annotations"][RENDERED_FROM] == inputs.text()
            assert made["spec"]["template"]["metadata"]["annotations"][REVISION] == inputs.revision()


def left_by(file):
    """A cluster that runs, with the objects that the release of this file made; its claims are never bound."""
    kube = SimKube()
    kube.put("orders", POOLS)
    uid = kube.objects[Ref("WalrusCluster", "shop", "orders")]["metadata"]["uid"]
    for made in former(file):
        made["metadata"]["ownerReferences"][0]["uid"] = uid
        kube.put_object(made)
    if FORMER[file]:
        labels, data = (
            {"walrus.dev/cluster": "orders"},
            {"secret": b64encode(b"a secret of the former release").decode()},
        )
        kube.make(SECRET, FORMER[file], labels, data=data)
    founder = {"name": "orders-general-0", "factor": "5", "writeQuorum": "4"}
    kube.make(CONFIG_MAP, "orders-bootstrap", {"walrus.dev/cluster": "orders"}, data=founder)
    while kube.step():
        pass
    return kube


@pytest.mark.parametrize("file", FORMER)
def test_a_new_operator_restarts_no_pod_that_a_former_one_made(file):
    kube = left_by(file)
    before = uids(kube)
    assert len(before) == 7
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert uids(kube) == before


def test_an_operator_that_knows_no_secret_restarts_no_pod_that_shares_one(monkeypatch):
    """The way back to the release before: it neither knows the input nor the Secret."""
    kube = left_by("objects-of-2026-11-25.yaml")
    converge(kube)
    before, read = uids(kube), kube.calls["get", "Secret"]
    known = PodInputs._known()
    monkeypatch.setattr(PodInputs, "_known", classmethod(lambda _: [one for one in known if one.name != "secret"]))
    monkeypatch.setattr(Snapshot, "shares_secret", lambda _: False)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert uids(kube) == before
    assert kube.calls["get", "Secret"] == read
    for pool in POOLS["pools"]:
        assert is_mounted(kube.objects[Ref("StatefulSet", "shop", f"orders-{pool['name']}")]["spec"]["template"])


def test_the_last_release_of_the_table_is_the_one_that_is_built_here():
    built = pytest.importorskip("walrus_core")
    node = tomllib.loads((Path(__file__).parents[2] / "node_image" / "pyproject.toml").read_text())["project"]
    wire = Wire(*built.DataPlane.WIRE_VERSIONS)
    assert RELEASES[-1] == Release(node["version"], wire, built.Metadata.LEVEL), "see CONTRIBUTING.md: A release"


def test_a_release_in_the_table_meets_the_one_before_it_and_knows_no_less():
    for before, release in pairwise(RELEASES):
        assert release.wire.meets(before.wire)
        assert release.level >= before.level
    assert Wire.parse(str(RELEASES[0].wire)) == RELEASES[0].wire


@dataclass(frozen=True)
class Later(PodInputs):
    """A release that knows one input more."""

    future: dict[str, str] = field(default_factory=dict)


def test_an_input_that_a_new_release_adds_restarts_nobody_until_a_user_sets_it(monkeypatch):
    before = pod_inputs(parse_spec(SMALLEST), parse_spec(SMALLEST).pools[0], "i", "")
    monkeypatch.setattr(statefulset, "PodInputs", Later)
    after = Later(**vars(before))
    assert after.revision() == before.revision()
    assert Later.parse(before.text()) == after
    assert replace(after, future={"name": "s"}).revision() != before.revision()


def test_brokers_are_made_anew_with_the_secret_of_a_registry_and_stay_where_nobody_names_one():
    """Their image could come only from a registry that is open to all: one more field, and it restarts nobody else."""
    assert "image_pull_secrets" not in pod_inputs(parse_spec(SMALLEST), parse_spec(SMALLEST).pools[0], "i", "").text()
    kube = started()
    before = uids(kube)
    kube.put("orders", changed(SMALLEST, imagePullSecrets=[{"name": "registry"}]))
    converge(kube)
    assert kube.objects[SET]["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert not set(uids(kube).values()) & set(before.values())
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize(
    "other",
    [
        with_pool(SMALLEST, labels={"example.com/team": "a"}),
        with_pool(SMALLEST, annotations={"example.com/owner": "a"}),
        with_pool(SMALLEST, priorityClassName="important"),
        with_pool(SMALLEST, env=[{"name": "A", "value": "b"}]),
        with_pool(SMALLEST, affinity={"podAffinity": {}}),
        changed(SMALLEST, podSecurity="Platform"),
    ],
    ids=lambda spec: next(
        name for name in {**spec, **spec["pools"][0]} if name not in ("version", "pools", "name", "storage")
    ),
)
def test_what_a_user_adds_to_pods_rolls_them_and_nothing_is_written_down_before(other):
    known = {"affinity", "priority_class", "labels", "annotations", "env", "pod_security"}
    assert (
        not known & json.loads(pod_inputs(parse_spec(SMALLEST), parse_spec(SMALLEST).pools[0], "i", "").text()).keys()
    )
    kube = started()
    before = uids(kube)
    kube.put("orders", other)
    converge(kube)
    assert not set(uids(kube).values()) & set(before.values())
    assert condition(kube, "Ready")["status"] == "True"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.objects[SET]["spec"]["template"]["spec"].keys().isdisjoint({"priorityClassName", "affinity"})
    assert Operator(kube).once().plan.is_idle


def test_an_older_operator_takes_what_a_newer_one_has_made_as_it_is():
    kube = started()
    rendered_by_another_release(kube, future={"a": 1})
    before, template = uids(kube), json.dumps(kube.objects[SET]["spec"]["template"])
    converge(kube)
    assert uids(kube) == before
    assert json.dumps(kube.objects[SET]["spec"]["template"]) == template
    assert json.loads(kube.objects[SET]["metadata"]["annotations"][RENDERED_FROM])["future"] == {"a": 1}
    assert condition(kube, "Ready")["status"] == "True"
    assert Operator(kube).once().plan.is_idle


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
