"""Machines are serviced, go off and come back: brokers leave them one by one, and come back as who they were."""

import pytest
from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simapi import is_ready
from simkube import SimKube
from walrus_operator.objects import POD

NEWER = changed(SMALLEST, version="2.0.0")
ON_FOLDERS = with_pool(SMALLEST, storage={"hostPath": {"path": "/var/lib/walrus-hosts"}}, allowHostPath=True)


def started(spec=SMALLEST, *, volumes_move=False):
    kube = SimKube()
    kube.nodes.volumes_move = volumes_move
    kube.put("orders", spec)
    converge(kube)
    return kube


def on(kube, node):
    return {name for name, pod in kube.pods().items() if pod["spec"].get("nodeName") == node}


def serving(kube):
    return {name for name, pod in kube.pods().items() if is_ready(pod)}


def releases(kube):
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in kube.pods().values()}


def disks(kube):
    return {ref.name: kube.identity(ref)["disk"] for ref in kube.objects if ref.kind == POD.name}


@pytest.mark.parametrize("spec", [SMALLEST, NEWER], ids=["alone", "beside a roll"])
def test_a_drained_node_gives_up_its_brokers_one_by_one(spec):
    kube = started(with_pool(SMALLEST, replicas=5), volumes_move=True)
    assert len(on(kube, "node-0")) == 2
    kube.put("orders", with_pool(spec, replicas=5))
    kube.nodes.drain("node-0")
    converge(kube, each=lambda: len(serving(kube)) >= 4 or pytest.fail("two at once"))
    assert not on(kube, "node-0")
    assert len(serving(kube)) == 5
    assert releases(kube) == {spec["version"]}
    assert condition(kube, "Ready")["status"] == "True"


def test_all_nodes_can_be_drained_in_turn():
    kube = started()
    before = disks(kube)
    for node in ("node-0", "node-1", "node-2"):
        kube.nodes.drain(node)
        converge(kube, each=lambda: len(serving(kube)) >= 2 or pytest.fail("two at once"))
        assert not on(kube, node)
        kube.nodes.uncordon(node)
        converge(kube)
        assert len(serving(kube)) == 3
    assert disks(kube) == before


def test_a_drain_waits_while_another_machine_is_off():
    kube = started()
    kube.nodes.fail("node-2")
    converge(kube)
    kube.nodes.drain("node-1")
    converge(kube)
    assert serving(kube) == {"orders-general-0", "orders-general-1"}
    kube.nodes.back("node-2")
    converge(kube)
    assert serving(kube) == {"orders-general-0", "orders-general-2"}
    assert not on(kube, "node-1")


def test_a_roll_waits_for_a_machine_that_is_off_and_goes_on_with_its_broker():
    kube = started()
    kube.nodes.fail("node-1")
    converge(kube)
    kube.put("orders", NEWER)
    converge(kube)
    assert serving(kube) == {"orders-general-0", "orders-general-2"}
    assert status(kube)["plan"]["blockedBy"] == "NodeAway"
    kube.nodes.back("node-1")
    converge(kube, each=lambda: len(serving(kube)) >= 2 or pytest.fail("two at once"))
    assert releases(kube) == {"2.0.0"}
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize("what", ["give_up", "forget"])
def test_a_broker_comes_back_with_its_machine_as_who_it_was(what):
    kube = started()
    before = disks(kube)
    kube.nodes.fail("node-1")
    converge(kube)
    getattr(kube.nodes, what)("node-1")
    converge(kube)
    assert serving(kube) == {"orders-general-0", "orders-general-2"}
    kube.nodes.back("node-1")
    converge(kube)
    assert disks(kube) == before
    assert kube.members["cluster-1"].keys() == set(before.values())
    assert condition(kube, "Ready")["status"] == "True"


def test_a_broker_whose_volume_is_on_a_machine_that_is_gone_is_told_of():
    kube = started()
    kube.nodes.forget("node-1")
    converge(kube)
    row = next(row for row in status(kube)["brokers"] if row["pod"] == "orders-general-1")
    assert "node" not in row
    assert "Unschedulable" in row["detail"]
    assert "node-1, which is gone" in status(kube)["plan"]["detail"]
    assert len(serving(kube)) == 2


def test_a_broker_whose_volume_follows_it_moves_to_another_machine():
    kube = started(volumes_move=True)
    before = disks(kube)
    kube.nodes.forget("node-1")
    converge(kube)
    assert not on(kube, "node-1")
    assert disks(kube) == before
    assert condition(kube, "Ready")["status"] == "True"


def test_brokers_on_folders_never_share_a_machine_and_are_known_by_their_folders():
    kube = started(ON_FOLDERS)
    before = disks(kube)
    assert [len(on(kube, f"node-{number}")) for number in range(3)] == [1, 1, 1]
    kube.put("orders", changed(ON_FOLDERS, version="2.0.0"))
    converge(kube)
    assert disks(kube) == before
    kube.nodes.forget("node-2")
    converge(kube)
    assert serving(kube) == {"orders-general-0", "orders-general-1"}
    assert "node-2, which is gone" in status(kube)["plan"]["detail"]
    kube.nodes.back("node-2")
    converge(kube)
    assert disks(kube) == before
    assert Operator(kube).look(KEY).lost_disks() == {}
