"""A disk that will never come back is replaced where someone names it, and one that may come back is not touched."""

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import SMALLEST, with_pool
from simapi import Crash
from simkube import SimKube
from walrus_operator.objects import CLAIM, CONFIG_MAP, POD, Ref

REPLACE = "walrus.dev/replace"
DEPARTURES = Ref(CONFIG_MAP.name, "shop", "orders-departures")


class Watched(SimKube):
    """No claim is deleted while its disk is a member, and none but the one that was named."""

    named = ""

    async def delete(self, ref, uid, *, orphan=False):
        if ref.kind == CLAIM.name and ref in self.objects:
            disk = self.disks["shop", "claim", ref.name.removeprefix("data-")]["disk"]
            assert disk == self.named
            assert disk not in self.members["cluster-1"]
        await super().delete(ref, uid, orphan=orphan)


def started(replicas=3):
    kube = Watched()
    kube.put("orders", with_pool(SMALLEST, replicas=replicas))
    converge(kube)
    return kube


def disk_of(kube, ordinal):
    return kube.identity(Ref(POD.name, "shop", f"orders-general-{ordinal}"))["disk"]


def node_of(kube, ordinal):
    return kube.pods()[f"orders-general-{ordinal}"]["spec"]["nodeName"]


def lose_node(kube, ordinal):
    """The machine of a broker is gone for good, and Kubernetes was told so. Returns the disk that was on it."""
    disk = disk_of(kube, ordinal)
    kube.nodes.forget(node_of(kube, ordinal))
    converge(kube)
    return disk


def order(kube, disk, replicas=3):
    kube.named = disk
    kube.put("orders", with_pool(SMALLEST, replicas=replicas), annotations={REPLACE: disk})


def blocked(kube):
    return status(kube).get("plan", {}).get("blockedBy")


def test_the_broker_of_a_lost_node_comes_up_on_another_one():
    kube = started()
    lost = lose_node(kube, 1)
    assert blocked(kube) == "NodeLost"
    assert lost in kube.members["cluster-1"]
    order(kube, lost)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert lost not in kube.members["cluster-1"]
    assert disk_of(kube, 1) in kube.members["cluster-1"]
    assert len(kube.members["cluster-1"]) == 3
    assert DEPARTURES not in kube.objects
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes
    told = [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert any(message.startswith(f"Give up disk {lost}") for message in told)


def test_a_disk_that_is_there_is_not_given_up_whatever_is_said():
    kube = started()
    disk = disk_of(kube, 1)
    order(kube, disk)
    converge(kube)
    assert disk in kube.members["cluster-1"]
    assert blocked(kube) == "ReplaceRefused"
    assert "lower replicas" in status(kube)["plan"]["detail"]


def test_a_disk_that_comes_back_in_the_last_moment_is_not_given_up():
    kube = started()
    node = node_of(kube, 1)
    lost = lose_node(kube, 1)
    order(kube, lost)
    operator, look, asked = Operator(kube), kube.brokers.look, []

    async def back_after_the_look(host):
        asked.append(host)
        if len(asked) == 3:
            kube.nodes.back(node)
            for _ in range(3):
                kube.step()
        return await look(host)

    kube.brokers.look = back_after_the_look
    operator.once()
    assert len(asked) >= 3
    assert lost in kube.members["cluster-1"]


def test_never_two_at_once():
    kube = started(4)
    lost = lose_node(kube, 1)
    kube.unready.add("orders-general-0")
    kube.step()
    order(kube, lost, 4)
    converge(kube)
    assert lost in kube.members["cluster-1"]
    assert "orders-general-0 does not" in status(kube)["plan"]["detail"]
    kube.unready.clear()
    converge(kube)
    assert lost not in kube.members["cluster-1"]


def test_the_disk_of_an_emptied_volume_is_given_up_and_the_claim_stays():
    kube = started()
    lost = disk_of(kube, 1)
    kube.disks["shop", "claim", "orders-general-1"] = {"disk": "new", "cluster": ""}
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    claim = kube.objects[Ref(CLAIM.name, "shop", "data-orders-general-1")]["metadata"]["uid"]
    assert condition(kube, "StorageHealthy")["reason"] == "LostDisk"
    order(kube, lost)
    converge(kube)
    assert lost not in kube.members["cluster-1"]
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert kube.objects[Ref(CLAIM.name, "shop", "data-orders-general-1")]["metadata"]["uid"] == claim


def test_a_crash_at_any_write_leads_to_the_same_end():
    kube = started()
    lost = lose_node(kube, 1)

    def check(kube):
        assert condition(kube, "Ready")["status"] == "True"
        assert lost not in kube.members["cluster-1"]
        assert len(kube.members["cluster-1"]) == 3

    crash_at_each_write(kube, [lambda kube: order(kube, lost)], check)


def test_what_has_begun_ends_though_the_annotation_is_taken_away():
    kube = started()
    lost = lose_node(kube, 1)
    order(kube, lost)
    operator = Operator(kube)
    while lost in kube.members["cluster-1"]:
        operator.once()
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert len(kube.members["cluster-1"]) == 3


def test_windows_hold_up_no_repair():
    kube = started()
    lost = lose_node(kube, 1)
    kube.named = lost
    windows = {"updatePolicy": {"maintenanceWindows": ["Sun 02:00-05:00 UTC"]}}
    kube.put("orders", SMALLEST | windows, annotations={REPLACE: lost})
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_a_disk_that_was_noted_as_lost_and_is_back_is_a_broker_like_all_others():
    """An operator died between the note and the call: the pod would not have followed any new spec."""
    kube = started()
    node = node_of(kube, 1)
    lost = lose_node(kube, 1)
    order(kube, lost)
    kube.crash_at, kube.crash_before = kube.writes + 1, False
    with pytest.raises(Crash):
        Operator(kube).once()
    assert DEPARTURES in kube.objects
    assert lost in kube.members["cluster-1"]
    kube.crash_at = None
    kube.nodes.back(node)
    for _ in range(3):
        kube.step()
    kube.put("orders", SMALLEST | {"version": "2.0.0"})
    converge(kube)
    assert lost in kube.members["cluster-1"]
    assert DEPARTURES not in kube.objects
    assert condition(kube, "Ready")["status"] == "True"
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:2.0.0"}
