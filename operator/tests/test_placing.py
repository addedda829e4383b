"""A broker whose data is in a folder of its node comes back to that node, or waits for it: never empty on another."""

from copy import deepcopy
from datetime import timedelta

import pytest
from crashing import converge_over_crashes
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from simapi import Crash, is_ready
from simkube import SimKube
from walrus_operator.desired.placing import placed
from walrus_operator.kube.api import Refused
from walrus_operator.objects import CONFIG_MAP, POD, Ref

FOLDERS = changed(
    with_pool(SMALLEST, storage={"hostPath": {"path": "/var/lib/walrus-hosts"}}, allowHostPath=True), lostAfter="20s"
)
NEWER = changed(FOLDERS, version="2.0.0")
DISKS = Ref(CONFIG_MAP.name, "shop", "orders-disks")
DEPARTURES = Ref(CONFIG_MAP.name, "shop", "orders-departures")


class Roaming(SimKube):
    """A scheduler that takes another node rather than the former one, as it may whenever there is room."""

    def __init__(self, nodes=4):
        super().__init__()
        self.nodes.pods_move = True
        for number in range(3, nodes):
            self.nodes.add(f"node-{number}")


def started(spec=FOLDERS, nodes=4):
    kube = Roaming(nodes)
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    return kube


def homes(kube):
    """Node and disk of each broker that is placed."""
    return {
        name: (pod["spec"]["nodeName"], kube.identity(Ref(POD.name, "shop", name))["disk"])
        for name, pod in kube.pods().items()
        if "nodeName" in pod["spec"]
    }


def home(kube, ordinal):
    return homes(kube)[f"orders-general-{ordinal}"]


def serving(kube):
    return [name for name, pod in kube.pods().items() if is_ready(pod)]


def blocked(kube):
    return status(kube).get("plan", {}).get("blockedBy")


def detail(kube):
    return status(kube)["plan"]["detail"]


def end(kube, disks=None):
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert DEPARTURES not in kube.objects
    assert {disk for _, disk in homes(kube).values()} == kube.members["cluster-1"].keys()
    assert disks is None or homes(kube) == disks
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes


def test_brokers_return_to_their_nodes_in_a_roll_though_there_is_room_elsewhere():
    """A roll moved a broker to a spare node, where it came up empty, and its disk stayed behind as a lost one."""
    kube = started()
    before = homes(kube)
    kube.put("orders", NEWER)
    converge(kube, each=lambda: len(serving(kube)) >= 2 or pytest.fail("two at once"))
    end(kube, before)
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:2.0.0"}
    told = [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert f"Place orders-general-1 on node {before['orders-general-1'][0]}" in told


def test_a_broker_waits_for_its_node_and_says_so():
    kube = started()
    before = homes(kube)
    node = home(kube, 1)[0]
    kube.nodes.drain(node)
    converge(kube)
    kube.time += timedelta(days=1)
    converge(kube)
    assert sorted(serving(kube)) == ["orders-general-0", "orders-general-2"]
    assert blocked(kube) == "NodeAway"
    assert f"kubectl uncordon {node}" in detail(kube)
    kube.nodes.uncordon(node)
    converge(kube)
    end(kube, before)


def test_a_new_broker_takes_no_node_with_the_data_of_another():
    kube = started(nodes=3)
    before = homes(kube)
    kube.put("orders", with_pool(FOLDERS, replicas=4))
    converge(kube)
    kube.refused[Ref(POD.name, "shop", "orders-general-1")] = Refused("a webhook says no")
    kube.remove("Pod", "orders-general-1")
    for _ in range(6):
        Operator(kube).once()
        kube.step()
    assert homes(kube).items() <= before.items()
    kube.refused.clear()
    kube.nodes.add("node-9")
    converge(kube)
    end(kube)
    assert homes(kube)["orders-general-3"][0] == "node-9"


def test_all_come_back_to_their_nodes_together():
    kube = started(nodes=6)
    before = homes(kube)
    kube.put("orders", changed(FOLDERS, hibernate=True))
    converge(kube)
    assert not kube.pods()
    kube.put("orders", FOLDERS)
    converge(kube)
    end(kube, before)


def test_the_folder_of_a_node_that_is_gone_is_given_up_and_its_broker_comes_up_on_another_one():
    kube = started()
    node, lost = home(kube, 1)
    kube.nodes.forget(node)
    converge(kube)
    assert blocked(kube) == "NodeLost"
    assert lost in kube.members["cluster-1"]
    kube.time += timedelta(seconds=21)
    converge(kube)
    end(kube)
    assert lost not in kube.members["cluster-1"]
    assert home(kube, 1)[0] != node


def test_two_of_them_are_not():
    kube = started(with_pool(FOLDERS, replicas=5), nodes=8)
    lost = [home(kube, ordinal) for ordinal in (1, 3)]
    for node, _ in lost:
        kube.nodes.forget(node)
    converge(kube)
    kube.time += timedelta(days=1)
    converge(kube)
    assert {disk for _, disk in lost} <= kube.members["cluster-1"].keys()
    kube.nodes.back(lost[1][0])
    converge(kube)
    end(kube)
    assert home(kube, 3) == lost[1]


def test_a_disk_that_someone_names_is_replaced_once():
    kube = started()
    node, lost = home(kube, 1)
    kube.nodes.fail(node)
    converge(kube)
    kube.nodes.give_up(node)
    kube.put("orders", FOLDERS, annotations={"walrus.dev/replace": lost})
    converge(kube)
    assert lost not in kube.members["cluster-1"]
    kube.nodes.forget(node)
    converge(kube)
    end(kube)
    restarts = [found for ref, found in kube.objects.items() if ref.kind == "Event" and found["reason"] == "Restarted"]
    assert len(restarts) <= 1


def test_a_broker_of_which_nobody_noted_the_node_is_held():
    kube = started()
    before = homes(kube)
    kube.down.add("orders-general-1")
    kube.remove("ConfigMap", "orders-disks")
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    kube.down.clear()
    converge(kube)
    assert "orders-general-1" not in homes(kube)
    assert blocked(kube) == "NodeAway"
    assert "nobody noted" in detail(kube)
    pod = kube.pods()["orders-general-1"]
    pod["spec"] |= placed(pod, before["orders-general-1"][0], ())["spec"]
    converge(kube)
    end(kube, before)


def test_a_removed_disk_in_a_folder_is_told_with_the_way_out():
    kube = started(nodes=3)
    node, removed = home(kube, 2)
    kube.put("orders", with_pool(changed(FOLDERS, replication={"factor": 2}), replicas=2))
    kube.copies_needed = 2
    converge(kube)
    kube.put("orders", FOLDERS)
    converge(kube)
    assert condition(kube, "StorageHealthy")["reason"] == "RemovedDisk"
    assert f"came up on disk {removed}" in detail(kube)
    assert f"empty the folder of its pool on node {node}" in detail(kube)
    del kube.disks["shop", node, "orders-general"]
    kube.remove("Pod", "orders-general-2")
    converge(kube)
    end(kube)


def test_pods_that_a_former_operator_made_stay_and_are_noted():
    kube = started()
    uids = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.remove("ConfigMap", "orders-disks")
    del kube.objects[Ref("StatefulSet", "shop", "orders-general")]["spec"]["template"]["spec"]["schedulingGates"]
    converge(kube)
    assert DISKS in kube.objects
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == uids


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_an_operator_that_dies_at_any_write_of_a_roll_leaves_every_broker_its_node(before):
    def story(crash_at):
        kube = deepcopy(BEGUN)
        expected, first = homes(kube), kube.writes
        kube.crash_at, kube.crash_before = None if crash_at is None else first + crash_at, before
        kube.put("orders", NEWER)
        crashes = converge_over_crashes(kube)
        end(kube, expected)
        return kube.writes - first, crashes

    writes, _ = story(None)
    assert all(story(crash_at)[1] == 1 for crash_at in range(1, writes + 1, 2))


PODS = [f"orders-general-{ordinal}" for ordinal in range(3)]
NODES = [f"node-{number}" for number in range(4)]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.integers(1, 4)),
        st.tuples(st.just("spec"), st.sampled_from([FOLDERS, NEWER, changed(FOLDERS, hibernate=True)])),
        st.tuples(st.just("crash"), st.tuples(st.integers(1, 6), st.booleans())),
        st.tuples(st.sampled_from(["remove", "silence", "refuse"]), st.sampled_from(PODS)),
        st.tuples(
            st.sampled_from(["cordon", "uncordon", "drain", "fail", "give_up", "forget", "back"]),
            st.sampled_from(NODES),
        ),
    ),
    max_size=15,
)
BEGUN = started()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(OPERATIONS)
def test_whatever_happens_no_broker_comes_up_empty_beside_its_folder(operations):
    kube = deepcopy(BEGUN)
    before, members = homes(kube), {*kube.members["cluster-1"]}
    kube.put("orders", changed(FOLDERS, lostAfter="never"))
    for what, value in operations:
        match what:
            case "passes":
                passes(kube, value)
            case "spec":
                kube.put("orders", changed(value, lostAfter="never"))
            case "crash":
                kube.crash_at, kube.crash_before = kube.writes + value[0], value[1]
            case "remove":
                kube.remove("Pod", value)
            case "silence":
                kube.down.add(value)
            case "refuse":
                kube.refused[Ref(POD.name, "shop", value)] = Refused("a webhook says no")
            case _:
                getattr(kube.nodes, what)(value)
        assert homes(kube).items() <= before.items()
    kube.crash_at = None
    kube.down.clear()
    kube.refused.clear()
    kube.nodes.heal()
    kube.put("orders", FOLDERS)
    converge(kube)
    end(kube, before)
    assert {*kube.members["cluster-1"]} == members


def passes(kube, number):
    operator = Operator(kube)
    for _ in range(number):
        try:
            operator.once()
        except Crash:
            operator = Operator(kube)
        kube.step()


def held(affinity=None):
    spec = {"schedulingGates": [{"name": "walrus.dev/place"}, {"name": "example.com/other"}]}
    return {"metadata": {"name": "p"}, "spec": spec | ({"affinity": {"nodeAffinity": affinity}} if affinity else {})}


def test_what_is_required_already_stays_required():
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}, {"matchFields": []}]
    made = placed(held({required: {"nodeSelectorTerms": terms}}), "node-1", ())["spec"]
    told = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    assert made["schedulingGates"] == [{"name": "example.com/other"}]
    assert made["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "arch", "operator": "Exists"}], "matchFields": [told]},
        {"matchFields": [told]},
    ]
    assert "affinity" not in placed(held(), "", ())["spec"]
    (term,) = placed(held(), "", ("a", "b"))["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert [(one["operator"], one["values"]) for one in term["matchFields"]] == [("NotIn", ["a"]), ("NotIn", ["b"])]
