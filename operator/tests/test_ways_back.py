"""Brokers that do not serve, or never came, hold up nothing but themselves; whoever scales by hand is not believed."""

import asyncio

import pytest
from crashing import crash_at_each_write
from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simapi import is_ready
from simkube import SimKube
from walrus_operator.objects import Ref
from walrus_operator.plan.actions import Plan, RollPod

SET = Ref("StatefulSet", "shop", "orders-general")
NEWER = changed(SMALLEST, version="2.0.0")
SICK = "walrus/walrus-node:2.0.0"


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def not_running(kube):
    """Which of the three wanted pods do not run."""
    names = {f"orders-general-{ordinal}" for ordinal in range(3)}
    return names - {name for name, pod in kube.pods().items() if "podIP" in pod["status"]}


def images(kube):
    return [pod["spec"]["containers"][0]["image"].rpartition(":")[2] for _, pod in sorted(kube.pods().items())]


def replicas(kube):
    return kube.objects[SET]["spec"]["replicas"]


# A release that runs and never serves


def test_a_release_whose_brokers_never_get_ready_is_taken_back():
    kube = started()
    kube.sick.add(SICK)
    kube.put("orders", NEWER)
    converge(kube)
    assert sorted(images(kube)) == ["1.0.0", "1.0.0", "2.0.0"]
    before = uids(kube)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert images(kube) == ["1.0.0"] * 3
    assert condition(kube, "Ready")["status"] == "True"
    assert sum(uids(kube)[name] != uid for name, uid in before.items()) == 1


def test_such_a_release_is_taken_back_although_another_broker_is_away():
    kube = started(with_pool(SMALLEST, replicas=5))
    kube.sick.add(SICK)
    kube.put("orders", with_pool(NEWER, replicas=5))
    converge(kube)
    kube.nodes.cordon("node-0")
    kube.remove("Pod", "orders-general-3")
    kube.put("orders", with_pool(SMALLEST, replicas=5))
    converge(kube)
    assert images(kube) == ["1.0.0"] * 5
    assert status(kube)["readyReplicas"] == 4


@pytest.mark.parametrize("what", ["fail", "give_up", "forget"])
def test_such_a_release_is_taken_back_although_a_machine_went_off(what):
    """One of three brokers ran a bad release, another was gone with its machine: Kubernetes leaves that pod as it was,
    or deletes it in vain. It was taken for one on the way back, which a broken broker waits for: two were missing for
    as long as the machine was off.
    """
    kube = started()
    kube.sick.add(SICK)
    kube.put("orders", NEWER)
    converge(kube)
    assert images(kube) == ["1.0.0", "2.0.0", "1.0.0"]
    kube.nodes.fail("node-2")
    getattr(kube.nodes, what)("node-2")
    converge(kube)
    assert status(kube)["readyReplicas"] == 0
    kube.put("orders", SMALLEST)
    converge(kube)
    assert status(kube)["readyReplicas"] == 2
    kube.nodes.back("node-2")
    converge(kube)
    assert images(kube) == ["1.0.0"] * 3
    assert condition(kube, "Ready")["status"] == "True"


def test_all_brokers_of_a_release_that_has_no_quorum_are_taken_back_one_by_one():
    kube = started()
    for pod in kube.pods().values():
        pod["spec"]["containers"][0]["image"] = SICK
        pod["metadata"]["annotations"]["walrus.dev/revision"] = "another"
        pod["status"] = {}
    kube.sick.add(SICK)
    kube.step()
    converge(kube, each=lambda: len(not_running(kube)) <= 1 or pytest.fail("two at once"))
    assert images(kube) == ["1.0.0"] * 3
    assert condition(kube, "Ready")["status"] == "True"


def test_a_moment_in_which_nobody_leads_takes_no_broker_that_served():
    """Nobody who leads meant that nobody is missed: every outdated pod went, one pass after the other."""
    kube = started()
    kube.put("orders", NEWER)
    Operator(kube).once()
    kube.step()
    kube.members["cluster-1"] |= {f"disk-away-{number}": f"away-{number}" for number in range(3)}
    kube.step()
    assert not any(map(is_ready, kube.pods().values()))
    before = uids(kube)
    for _ in range(5):
        Operator(kube).once()
    assert uids(kube) == before
    assert not any("deletionTimestamp" in pod["metadata"] for pod in kube.pods().values())


def test_of_brokers_that_all_start_again_one_goes_and_the_next_when_it_is_back():
    kube = started()
    kube.put("orders", NEWER)
    Operator(kube).once()
    kube.step()
    for pod in kube.pods().values():
        pod["status"] = {}
    for _ in range(5):
        Operator(kube).once()
    assert sum("deletionTimestamp" in pod["metadata"] for pod in kube.pods().values()) == 1
    converge(kube)
    assert images(kube) == ["2.0.0"] * 3


def test_a_leader_that_was_elected_since_the_look_is_asked_first():
    kube = started()
    for pod in kube.pods().values():
        pod["metadata"]["annotations"]["walrus.dev/revision"] = "another"
        pod["spec"]["containers"][0]["image"] = SICK
        pod["status"] = {}
    kube.sick.add(SICK)
    for _ in range(3):
        kube.step()
    reconciler = Operator(kube).reconciler
    snapshot = asyncio.run(reconciler._observer.look(KEY))
    kube.sick.clear()
    plan = Plan(steps=(RollPod("orders-general-1", uids(kube)["orders-general-1"], spared=True, broken=True),))
    done = asyncio.run(reconciler._executor.act(plan, snapshot))
    assert done.actions == ()
    assert "leads the metadata since just now" in done.waits[0].detail


def test_a_broker_that_takes_part_and_is_not_ready_goes_only_if_the_others_can_do_without_it():
    kube = started()
    kube.unready.add("orders-general-1")
    kube.keep = ["2 open segments would have too few replicas"]
    kube.put("orders", NEWER)
    converge(kube)
    assert images(kube) == ["1.0.0"] * 3
    assert status(kube)["plan"]["blockedBy"] == "QuorumTight"
    kube.keep = []
    Operator(kube).once()
    assert "deletionTimestamp" in kube.pods()["orders-general-1"]["metadata"]


def test_a_release_that_does_not_come_up_takes_no_second_broker_that_takes_part():
    kube = started(with_pool(SMALLEST, replicas=5))
    kube.sick.add(SICK)
    kube.put("orders", with_pool(NEWER, replicas=5))
    converge(kube)
    kube.unready.add("orders-general-3")
    converge(kube)
    assert sorted(images(kube)) == ["1.0.0"] * 4 + ["2.0.0"]


# A broker that never came


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "grown"])
def test_a_broker_that_fits_nowhere_goes_again_and_its_claim_with_it(late):
    kube = SimKube()
    kube.nodes.limit_disks(3)
    if late:
        kube.put("orders", SMALLEST)
        converge(kube)
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "PodPending"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert replicas(kube) == 3
    assert condition(kube, "SpecAccepted")["status"] == "True"
    assert condition(kube, "Ready")["status"] == "True"
    assert Ref("PersistentVolumeClaim", "shop", "data-orders-general-3") not in kube.objects


def test_no_roll_and_no_setting_waits_for_a_broker_that_never_came():
    kube = started()
    kube.nodes.limit_disks(3)
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    kube.put("orders", with_pool(changed(NEWER, segments={"maxEntries": 7}), replicas=4))
    converge(kube)
    assert images(kube) == ["2.0.0"] * 4
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert status(kube)["plan"]["blockedBy"] == "PodPending"


def test_the_claim_of_a_broker_that_never_joined_stays_if_it_ever_had_a_volume():
    kube = started()
    kube.stuck.add("orders-general-3")
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert replicas(kube) == 3
    assert Ref("PersistentVolumeClaim", "shop", "data-orders-general-3") in kube.objects


def test_a_member_that_is_away_does_not_go():
    kube = started(with_pool(SMALLEST, replicas=4))
    kube.nodes.cordon("node-0")
    kube.remove("Pod", "orders-general-3")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert replicas(kube) == 4
    assert status(kube)["plan"]["blockedBy"] == "NodeAway"


def test_nobody_goes_while_nobody_can_tell_who_is_a_member():
    kube = started()
    kube.nodes.limit_disks(3)
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    kube.down |= set(kube.pods())
    kube.put("orders", SMALLEST)
    converge(kube)
    assert replicas(kube) == 4
    assert condition(kube, "SpecAccepted")["status"] == "True"
    assert status(kube)["plan"]["blockedBy"] == "UnknownBroker"
    kube.down.clear()
    converge(kube)
    assert replicas(kube) == 3


def test_a_broker_that_joins_in_the_last_moment_is_not_dismissed():
    kube = started()
    kube.nodes.limit_disks(3)
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    kube.put("orders", SMALLEST)
    asked, look = [], kube.brokers.look

    async def joins_after_the_look(host):
        told = await look(host)
        asked.append(host)
        if len(asked) == 3:
            kube.members["cluster-1"]["disk-of-3"] = "orders-general-3"
        return told

    kube.brokers.look = joins_after_the_look
    Operator(kube).once()
    assert len(asked) == 4
    assert replicas(kube) == 4


# kubectl scale


def test_a_set_that_someone_scaled_down_comes_back_all_together():
    kube = started(with_pool(SMALLEST, replicas=5))
    kube.scale("orders-general", 0)
    kube.step()
    assert kube.pods() == {}
    Operator(kube).once()
    assert replicas(kube) == 5
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_a_set_that_an_older_operator_made_and_someone_scaled_to_nothing_comes_back_whole():
    kube = started()
    kube.objects[SET]["metadata"]["annotations"].pop("walrus.dev/replicas")
    kube.scale("orders-general", 0)
    kube.step()
    Operator(kube).once()
    assert replicas(kube) == 3


def test_brokers_that_someone_added_and_that_joined_stay_if_the_spec_asks_for_them_meanwhile():
    kube = started()
    kube.scale("orders-general", 6)
    for _ in range(5):
        kube.step()
    kube.put("orders", with_pool(NEWER, replicas=6))
    converge(kube)
    assert replicas(kube) == 6
    assert images(kube) == ["2.0.0"] * 6
    assert condition(kube, "Ready")["status"] == "True"


def test_brokers_that_someone_added_and_that_never_joined_go():
    kube = started()
    kube.nodes.limit_disks(4)
    kube.scale("orders-general", 6)
    for _ in range(5):
        kube.step()
    converge(kube)
    assert replicas(kube) == 3
    assert len(kube.members["cluster-1"]) == 3


def test_a_crash_at_any_write_of_the_way_back_leads_to_the_same_end():
    """A bad release, a broker that fits nowhere, a set scaled by hand; and the way back from all of it."""
    kube = started()
    kube.nodes.limit_disks(3)
    kube.sick.add(SICK)
    disks, settings, newer = set(kube.disks), [], with_pool(changed(NEWER, segments={"maxEntries": 9}), replicas=4)

    def scaled(kube):
        kube.put("orders", with_pool(SMALLEST, replicas=4))
        kube.scale("orders-general", 1)

    def check(kube):
        assert images(kube) == ["3.0.0"] * 3
        settings.append(kube.config["cluster-1"][1])
        assert settings[-1] == settings[0]
        assert set(kube.disks) == disks
        assert condition(kube, "Ready")["status"] == "True"
        assert all(is_ready(pod) for pod in kube.pods().values())

    acts = [
        lambda kube: kube.put("orders", newer),
        scaled,
        lambda kube: kube.put("orders", changed(SMALLEST, version="3.0.0")),
    ]
    straight = crash_at_each_write(kube, acts, check)
    assert straight.calls["create", "Pod/eviction"] >= 4
    assert straight.calls["transfer", "leadership"] >= 1
