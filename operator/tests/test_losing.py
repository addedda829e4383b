"""A broker whose node is gone, and its disk with it, is replaced by itself: one at a time, and never one that may come
back.
"""

from copy import deepcopy
from datetime import timedelta

import pytest
from crashing import converge_over_crashes
from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simapi import Crash
from simkube import SimKube
from walrus_operator.cli.told import explained
from walrus_operator.kube.api import Denied
from walrus_operator.objects import CLAIM, CONFIG_MAP, NODE, POD, VOLUME, Ref
from walrus_operator.observe.machines import Machine, Volume

QUICK = changed(SMALLEST, lostAfter="20s")
REPLACE = "walrus.dev/replace"
LATER = timedelta(seconds=21)
ZONE = "topology.kubernetes.io/zone"


class Watched(SimKube):
    """Looks at everything that cannot be taken back."""

    def __init__(self):
        super().__init__()
        self.given_up = []

    def remove_lost(self, disk):
        """A disk leaves the cluster with what it stored: its node is gone, and every other broker there is serves."""
        if disk in self.members["cluster-1"]:
            pods = [ref.name for ref in self.objects if ref.kind == POD.name and self._on(ref) == disk]
            assert len(pods) == 1, "it is on no volume of a pod that is there"
            (pod,) = pods
            assert not [one for one in self.nodes.manifests() if one["metadata"]["name"] == self.node_of_volume(pod)]
            assert all(is_serving(self, other) for other in self.pods() if other != pod)
            self.given_up.append(disk)

    def node_of_volume(self, pod):
        return self.objects[Ref(CLAIM.name, "shop", f"data-{pod}")]["metadata"]["annotations"][
            "volume.kubernetes.io/selected-node"
        ]

    def _on(self, ref):
        claim = ("shop", "claim", ref.name)
        return self.disks.get(claim, {}).get("disk")

    async def delete(self, ref, uid):
        if ref.kind == CLAIM.name and ref in self.objects:
            disk = self.disks["shop", "claim", ref.name.removeprefix("data-")]["disk"]
            assert disk in self.given_up
            assert disk not in self.members["cluster-1"]
        await super().delete(ref, uid)

    async def evict(self, ref, uid):
        others = {name for name in self.pods() if name != ref.name}
        assert not is_serving(self, ref.name) or all(is_serving(self, other) for other in others)
        await super().evict(ref, uid)


def is_serving(kube, pod):
    return {"type": "Ready", "status": "True"} in kube.pods()[pod]["status"].get("conditions", ())


def started(spec=QUICK, nodes=3, kube=None):
    kube = kube or Watched()
    for number in range(3, nodes):
        kube.nodes.add(f"node-{number}")
    kube.put("orders", spec)
    converge(kube)
    return kube


def disk_of(kube, ordinal):
    return kube.identity(Ref(POD.name, "shop", f"orders-general-{ordinal}"))["disk"]


def lose(kube, ordinal):
    """The node of a broker is deleted, and it never comes back. Returns the disk that was on it."""
    disk = disk_of(kube, ordinal)
    kube.nodes.forget(kube.pods()[f"orders-general-{ordinal}"]["spec"]["nodeName"])
    for _ in range(2):
        kube.step()
    return disk


def wait(kube, long=LATER):
    kube.time += long
    converge(kube)


def members(kube):
    return kube.members["cluster-1"].keys()


def blocked(kube):
    return status(kube).get("plan", {}).get("blockedBy")


def detail(kube):
    return status(kube)["plan"]["detail"]


def row(kube, ordinal):
    return next(row for row in status(kube)["brokers"] if row["pod"] == f"orders-general-{ordinal}")


def events(kube):
    return [(found["reason"], found["message"]) for ref, found in kube.objects.items() if ref.kind == "Event"]


def end(kube, lost, *, brokers=3):
    """Everything is as it was, on other disks."""
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert not members(kube) & {*lost}
    assert len(members(kube)) == brokers
    assert Ref(CONFIG_MAP.name, "shop", "orders-departures") not in kube.objects
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_broker_whose_node_is_gone_is_replaced_after_a_while(policy):
    kube = started(changed(QUICK, deletionPolicy=policy))
    lost = lose(kube, 1)
    converge(kube)
    assert blocked(kube) == "NodeLost"
    assert "as lostAfter says" in detail(kube)
    assert (condition(kube, "StorageHealthy")["status"], condition(kube, "StorageHealthy")["reason"]) == (
        "False",
        "LostNode",
    )
    assert "node-1, which is gone" in row(kube, 1)["detail"]
    assert [one["uuid"] for one in status(kube)["members"] if one["state"] == "Lost"] == [lost]
    assert lost in members(kube)
    (cluster,) = [found for ref, found in kube.objects.items() if ref.kind == "WalrusCluster"]
    told = explained(cluster)
    assert f"Held up by NodeLost: {detail(kube)}" in told
    assert any(line.startswith("Who can lift it: it opens by itself") for line in told)
    phases = set()
    kube.time += LATER
    converge(kube, each=lambda: phases.add(status(kube)["phase"]))
    assert "Replacing" in phases
    end(kube, [lost])
    told = events(kube)
    assert ("DiskGivenUp", f"Give up disk {lost} of orders-general-1, whose node is gone") in told
    assert ("Removed", "Delete PersistentVolumeClaim data-orders-general-1") in told
    assert ("Restarted", "Restart orders-general-1 (its disk was given up)") in told
    assert any(reason == "StorageUnhealthy" and "which is gone" in message for reason, message in told)


def test_nobody_looks_at_nodes_or_volumes_while_all_brokers_are_there():
    kube = started()
    for _ in range(3):
        Operator(kube).once()
    assert kube.calls["list", NODE.name] == kube.calls["get", VOLUME.name] == 0


def test_it_is_looked_at_again_as_soon_as_the_time_is_over():
    kube = started()
    lose(kube, 1)
    operator = Operator(kube)
    for _ in range(8):
        again = operator.once().again_s
    assert again <= 20
    operator.now = kube.time = kube.time + timedelta(seconds=12)
    assert operator.once().again_s <= 8


@pytest.mark.parametrize("forbids", ["never", "8760h"])
def test_who_forbids_it_replaces_by_hand(forbids):
    kube = started(changed(QUICK, lostAfter=forbids))
    lost = lose(kube, 1)
    wait(kube, timedelta(days=99))
    assert lost in members(kube)
    assert blocked(kube) == "NodeLost"
    assert f"{REPLACE}={lost}" in detail(kube)
    kube.given_up.append(lost)
    kube.put("orders", changed(QUICK, lostAfter=forbids), annotations={REPLACE: lost})
    converge(kube)
    end(kube, [lost])


def test_a_node_that_does_not_answer_may_come_back():
    kube = started()
    before = {disk_of(kube, ordinal) for ordinal in range(3)}
    kube.nodes.fail("node-1")
    converge(kube)
    kube.nodes.give_up("node-1")
    wait(kube, timedelta(days=99))
    assert members(kube) == before
    assert blocked(kube) == "NodeAway"
    assert "kubectl delete node node-1" in detail(kube)
    assert "does not answer" in row(kube, 1)["detail"]
    kube.nodes.back("node-1")
    converge(kube)
    end(kube, [])
    assert members(kube) == before


def test_a_broker_whose_volume_is_on_a_cordoned_node_is_told_of():
    kube = started()
    kube.nodes.cordon("node-1")
    kube.remove("Pod", "orders-general-1")
    wait(kube, timedelta(days=99))
    assert blocked(kube) == "NodeAway"
    assert "kubectl uncordon node-1" in detail(kube)
    assert len(members(kube)) == 3
    kube.nodes.uncordon("node-1")
    converge(kube)
    end(kube, [])


def test_a_volume_that_is_on_no_node_in_particular_is_never_lost_with_one():
    kube = Watched()
    kube.nodes.volumes_move = True
    started(kube=kube)
    before = {*members(kube)}
    lose(kube, 1)
    wait(kube)
    end(kube, [])
    assert members(kube) == before


def test_a_node_that_is_back_in_time_brings_its_broker():
    kube = started()
    lost = lose(kube, 1)
    converge(kube)
    kube.nodes.back("node-1")
    wait(kube)
    end(kube, [])
    assert lost in members(kube)


def test_a_node_that_comes_back_in_the_last_moment_is_not_given_up():
    kube = started()
    lost = lose(kube, 1)
    kube.time += LATER
    listed, list_ = [], kube.list

    async def back_after_the_look(kind, namespace, selector=""):
        if kind.name == NODE.name:
            listed.append(kind)
            if len(listed) == 2:
                kube.nodes.back("node-1")
        return await list_(kind, namespace, selector)

    kube.list = back_after_the_look
    Operator(kube).once()
    assert len(listed) == 2
    assert lost in members(kube)
    kube.list = list_
    converge(kube)
    end(kube, [])


def test_a_node_that_comes_back_in_the_middle_brings_a_disk_that_is_refused():
    kube = started()
    lost = lose(kube, 1)
    kube.time += LATER
    operator = Operator(kube)
    while lost in members(kube):
        operator.once()
    kube.nodes.back("node-1")
    for _ in range(3):
        kube.step()
    converge(kube)
    end(kube, [lost])


def test_brokers_of_two_lost_nodes_are_never_replaced_at_once():
    """What looks like two lost nodes may be a zone that is away; its disks come back with it."""
    kube = started(with_pool(QUICK, replicas=5), nodes=6)
    one, other = lose(kube, 1), lose(kube, 3)
    wait(kube, timedelta(days=99))
    assert {one, other} <= members(kube)
    assert "orders-general-3 does not" in detail(kube)
    kube.nodes.back("node-3")
    converge(kube)
    end(kube, [one], brokers=5)
    assert kube.given_up == [one]


def test_a_second_node_that_is_lost_during_a_replacement_waits_for_the_first():
    kube = started(with_pool(QUICK, replicas=5), nodes=7)
    one = lose(kube, 1)
    kube.time += LATER
    operator = Operator(kube)
    while one in members(kube):
        operator.once()
    other = lose(kube, 3)
    wait(kube)  # `Watched` looks that the first one serves before the second is given up
    wait(kube)
    assert kube.given_up == [one, other]
    end(kube, [one, other], brokers=5)


def test_a_zone_without_nodes_comes_back():
    kube = Watched()
    for number in range(3):
        kube.nodes.labels[f"node-{number}"] = {ZONE: f"zone-{number}"}
        kube.nodes.zones_of_volumes[f"volume-of-orders-general-{number}"] = {ZONE: f"zone-{number}"}
    started(kube=kube)
    lost = lose(kube, 1)
    wait(kube, timedelta(days=99))
    assert lost in members(kube)
    assert "no node of zone zone-1 is left" in detail(kube)
    kube.nodes.add("node-3")
    kube.nodes.labels["node-3"] = {ZONE: "zone-1"}
    converge(kube)
    end(kube, [lost])


def test_a_disk_that_the_others_cannot_do_without_is_not_given_up():
    kube = started()
    lost = lose(kube, 1)
    kube.keep = ["2 sealed segments would have no copy that can be read"]
    wait(kube)
    assert lost in members(kube)
    waits = Operator(kube).once().done.waits
    assert [(one.gate, "no copy that can be read" in one.detail) for one in waits] == [("QuorumTight", True)]
    kube.keep = []
    converge(kube)
    end(kube, [lost])


def test_a_disk_is_known_by_its_uuid_and_not_by_the_name_of_its_pod():
    """Someone deleted a claim, whose volume stays; the node of the next one was lost before its broker had joined."""
    kube = started(nodes=4)
    kept = disk_of(kube, 1)
    kube.nodes.cordon("node-1")
    kube.remove("Pod", "orders-general-1")
    kube.remove(CLAIM.name, "data-orders-general-1")
    kube.stuck.add("orders-general-1")
    for _ in range(3):
        kube.step()
    converge(kube)
    assert kube.node_of_volume("orders-general-1") != "node-1"
    kube.nodes.forget(kube.node_of_volume("orders-general-1"))
    kube.stuck.clear()
    wait(kube, timedelta(days=99))
    assert kept in members(kube)
    assert "nobody noted which disk" in detail(kube)


class Blind(Watched):
    """Nobody granted a look at nodes and volumes."""

    async def list(self, kind, namespace, selector=""):
        if kind.name == NODE.name:
            raise Denied("nodes is forbidden")
        return await super().list(kind, namespace, selector)

    async def get(self, ref):
        if ref.kind == VOLUME.name:
            raise Denied("persistentvolumes is forbidden")
        return await super().get(ref)


def test_without_the_right_to_look_at_nodes_it_waits_and_says_so():
    kube = started(kube=Blind())
    lost = lose(kube, 1)
    converge(kube)
    assert blocked(kube) == "PodPending"
    wait(kube)
    assert lost in members(kube)
    assert blocked(kube) == "Forbidden"
    assert "rbac.clusterRole" in detail(kube)
    kube.given_up.append(lost)
    kube.put("orders", QUICK, annotations={REPLACE: lost})
    converge(kube)
    end(kube, [lost])


def test_a_paused_cluster_is_only_told_of():
    kube = started()
    lost = lose(kube, 1)
    kube.put("orders", QUICK, annotations={"walrus.dev/pause": "machines move"})
    wait(kube)
    assert lost in members(kube)
    kube.put("orders", QUICK)
    converge(kube)
    end(kube, [lost])


@pytest.mark.parametrize(
    "spec",
    [
        changed(QUICK, version="2.0.0"),
        with_pool(QUICK, replicas=4),
        changed(QUICK, lostAfter="never"),
        changed(QUICK, deletionPolicy="Delete"),
        with_pool(QUICK, storage={"claim": {"size": "2Gi"}}),
    ],
    ids=["version", "replicas", "never", "policy", "refused"],
)
@pytest.mark.parametrize("passes", [1, 2])
def test_what_has_begun_ends_whatever_the_spec_says_meanwhile(spec, passes):
    kube = started(nodes=4)
    lost = lose(kube, 1)
    kube.time += LATER
    operator = Operator(kube)
    for _ in range(passes):
        operator.once()
        kube.step()
    begun = lost not in members(kube)
    kube.put("orders", spec)
    converge(kube)
    if spec.get("lostAfter") == "never" and not begun:
        assert lost in members(kube)
        return
    assert lost not in members(kube)
    kube.put("orders", changed(spec, pools=with_pool(spec, storage=SMALLEST["pools"][0]["storage"])["pools"]))
    converge(kube)
    end(kube, [lost], brokers=spec["pools"][0].get("replicas", 3))


def test_a_cluster_that_sleeps_replaces_when_it_is_awake():
    kube = started()
    lost = lose(kube, 1)
    kube.put("orders", changed(QUICK, hibernate=True))
    wait(kube)
    assert lost in members(kube)
    kube.put("orders", QUICK)
    converge(kube)
    wait(kube)
    end(kube, [lost])


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_an_operator_that_dies_at_any_write_is_followed_by_one_that_ends_it(before):
    """Each operator has no memory: since when a broker is away is Kubernetes' to say."""

    begun = started()
    lost = lose(begun, 1)
    converge(begun)

    def story(crash_at):
        kube = deepcopy(begun)
        first = kube.writes
        kube.crash_at, kube.crash_before = None if crash_at is None else first + crash_at, before
        kube.time += LATER
        crashes = converge_over_crashes(kube)
        end(kube, [lost])
        assert kube.given_up == [lost]
        return kube.writes - first, crashes

    writes, _ = story(None)
    assert all(story(crash_at)[1] == 1 for crash_at in range(1, writes + 1))


def test_a_note_of_a_disk_that_is_back_is_taken_away():
    kube = started()
    lost = lose(kube, 1)
    converge(kube)
    kube.time += LATER
    kube.crash_at, kube.crash_before = kube.writes + 1, False
    with pytest.raises(Crash):
        Operator(kube).once(KEY)
    assert Ref(CONFIG_MAP.name, "shop", "orders-departures") in kube.objects
    kube.crash_at = None
    kube.nodes.back("node-1")
    converge(kube)
    end(kube, [])
    assert lost in members(kube)


def test_a_removed_disk_that_shows_up_again_is_told_with_the_way_out():
    kube = started()
    lost = disk_of(kube, 1)
    claim = kube.disks["shop", "claim", "orders-general-1"]
    kube.nodes.forget("node-1")
    wait(kube)
    wait(kube)
    end(kube, [lost])
    kube.disks["shop", "claim", "orders-general-1"] = claim
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    assert condition(kube, "StorageHealthy")["reason"] == "RemovedDisk"
    assert f"came up on disk {lost}" in row(kube, 1)["detail"]
    way = "kubectl -n shop delete persistentvolumeclaim/data-orders-general-1 pod/orders-general-1"
    assert way in detail(kube)
    kube.remove(CLAIM.name, "data-orders-general-1")
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    assert row(kube, 1)["state"] == "Serving"


def volume(*terms, **labels):
    made = {"required": {"nodeSelectorTerms": list(terms)}} if terms else None
    return Volume.parse({"metadata": {"name": "v", "labels": labels}, "spec": {"nodeAffinity": made}})


def asks(key, operator, *values, of="matchExpressions"):
    return {of: [{"key": key, "operator": operator, "values": list(values)}]}


def machine(name, **labels):
    return Machine(name, {"kubernetes.io/hostname": name, **labels}, ready=True, cordoned=False)


@pytest.mark.parametrize(
    ("told", "nodes", "reached"),
    [
        (volume(), (), ["a", "b"]),
        (volume(asks("kubernetes.io/hostname", "In", "a")), ("a",), ["a"]),
        (volume(asks("topology.topolvm.io/node", "In", "gone")), ("gone",), []),
        (volume(asks("metadata.name", "In", "b", of="matchFields")), ("b",), ["b"]),
        (volume(asks("kubernetes.io/hostname", "In", "a"), asks(ZONE, "In", "z")), (), ["a"]),
        (volume(asks(ZONE, "In", "z")), (), []),
        (volume(asks("kubernetes.io/hostname", "NotIn", "a")), (), ["b"]),
        (volume(asks("disk", "Exists")), (), ["b"]),
        (volume(asks("disk", "DoesNotExist")), (), ["a"]),
        (volume(asks("disk", "Gt", "3")), (), ["a", "b"]),
        (volume({}), (), []),
    ],
)
def test_a_volume_is_reached_as_its_affinity_says(told, nodes, reached):
    there = [machine("a"), machine("b", disk="1")]
    assert told.nodes == nodes
    assert [one.name for one in told.reached_from(there)] == reached
