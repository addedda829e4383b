"""Brokers go one at a time: emptied, out of the cluster, then their pods; and back as long as that can be."""

from dataclasses import replace

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.kube.api import Denied
from walrus_operator.objects import CLAIM, CLUSTER, CONFIG_MAP, STATEFUL_SET, Ref

FIVE = with_pool(SMALLEST, replicas=5)
DEPARTURES = Ref(CONFIG_MAP.name, "shop", "orders-departures")
SET = Ref(STATEFUL_SET.name, "shop", "orders-general")
IN_WINDOWS = {"maintenanceWindows": ["Sun 02:00-05:00 UTC"]}


class Watched(SimKube):
    """No pod is scaled away and no claim deleted while a member is on its disk, and never two brokers at once."""

    async def apply(self, manifest):
        found = self.objects.get(Ref(manifest["kind"], "shop", manifest["metadata"]["name"]))
        sleeps = "walrus.dev/hibernated" in manifest["metadata"].get("annotations", {})
        if manifest["kind"] == STATEFUL_SET.name and found is not None and not sleeps:
            for ordinal in range(manifest["spec"]["replicas"], found["spec"]["replicas"]):
                assert ordinal == found["spec"]["replicas"] - 1, "two at once"
                assert not self.is_member(f"{found['metadata']['name']}-{ordinal}")
        return await super().apply(manifest)

    async def delete(self, ref, uid, *, orphan=False):
        ends = "deletionTimestamp" in self.objects[Ref(CLUSTER.name, "shop", "orders")]["metadata"]
        if ref.kind == CLAIM.name and ref in self.objects and not ends:
            assert not self.is_member(ref.name.removeprefix("data-"))
        if ref.kind == STATEFUL_SET.name:
            assert self.objects[ref]["spec"]["replicas"] == 0
        await super().delete(ref, uid, orphan=orphan)

    def is_member(self, pod):
        disk = self.disks.get(("shop", "claim", pod), {"disk": ""})["disk"]
        return any(disk in members for members in self.members.values())


def started(spec=FIVE):
    kube = Watched()
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    return kube


def claim(pod):
    return Ref(CLAIM.name, "shop", f"data-{pod}")


def plan(kube):
    return {"blockedBy": None, "detail": "", **status(kube).get("plan", {})}


def members(kube):
    return sorted(kube.members["cluster-1"].values())


def until(kube, reached):
    """Passes and steps until something is so."""
    operator = Operator(kube)
    for _ in range(200):
        if reached():
            return operator
        operator.once()
        kube.step()
    raise AssertionError(status(kube))


def drains(kube):
    return {kube.members["cluster-1"][disk] for disk in kube.draining}


def test_five_brokers_become_three_and_their_claims_stay():
    kube = started()
    kube.put("orders", SMALLEST)
    phases, order = set(), []
    converge(kube, each=lambda: (phases.add(status(kube)["phase"]), order.append(tuple(members(kube)))))
    assert list(kube.pods()) == members(kube) == ["orders-general-0", "orders-general-1", "orders-general-2"]
    assert [len(found) for found in dict.fromkeys(order)] == [5, 4, 3]
    assert "Shrinking" in phases
    assert condition(kube, "Ready")["status"] == "True"
    assert {claim("orders-general-3"), claim("orders-general-4")} <= kube.objects.keys()
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes
    told = [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert any(message.startswith("Drain orders-general-4") for message in told)


def test_what_a_broker_still_has_is_told_while_it_hands_over():
    kube = started()
    kube.put("orders", SMALLEST)
    until(kube, lambda: status(kube).get("plan", {}).get("blockedBy") == "Draining")
    assert "orders-general-4 goes once it has handed over what it has" in plan(kube)["detail"]
    assert condition(kube, "Progressing")["status"] == "True"
    assert status(kube)["phase"] == "Shrinking"
    (row,) = (row for row in status(kube)["brokers"] if row["pod"] == "orders-general-4")
    assert 0 <= row["drainPercent"] < 100
    assert {row["state"] for row in status(kube)["members"]} == {"Alive", "Draining"}


def test_a_claim_goes_with_its_broker_where_the_policy_says_so():
    kube = started(changed(FIVE, deletionPolicy="Delete"))
    kube.put("orders", changed(SMALLEST, deletionPolicy="Delete"))
    converge(kube)
    assert {claim("orders-general-3"), claim("orders-general-4")}.isdisjoint(kube.objects)
    assert claim("orders-general-2") in kube.objects
    assert DEPARTURES not in kube.objects
    kube.put("orders", changed(FIVE, deletionPolicy="Delete"))
    converge(kube)
    assert len(members(kube)) == 5


def test_growing_over_a_claim_whose_disk_left_waits_until_someone_deletes_it():
    kube = started()
    kube.put("orders", SMALLEST)
    converge(kube)
    kube.put("orders", FIVE)
    converge(kube)
    assert len(members(kube)) == 3
    assert plan(kube)["blockedBy"] == "RemovedDisk"
    assert "kubectl -n shop delete persistentvolumeclaim data-orders-general-3" in plan(kube)["detail"]
    for pod in ("orders-general-3", "orders-general-4"):
        kube.remove(CLAIM.name, f"data-{pod}")
    converge(kube)
    assert len(members(kube)) == 5
    assert DEPARTURES not in kube.objects


@pytest.mark.parametrize("steps", range(1, 12))
def test_scaling_up_takes_a_drain_back_whenever_it_is_said(steps):
    kube = started()
    kube.put("orders", SMALLEST)
    operator = Operator(kube)
    for _ in range(steps):
        operator.once()
        kube.step()
    left = {"orders-general-3", "orders-general-4"} - {*members(kube)}
    kube.put("orders", FIVE)
    converge(kube)
    assert not drains(kube)
    for pod in left:
        kube.remove(CLAIM.name, f"data-{pod}")
    converge(kube)
    assert len(members(kube)) == 5
    assert condition(kube, "Ready")["status"] == "True"
    assert DEPARTURES not in kube.objects


def test_a_set_that_is_deleted_while_a_broker_goes_comes_back_whole():
    kube = started()
    kube.put("orders", SMALLEST)
    until(kube, lambda: drains(kube) == {"orders-general-4"})

    kube.remove("StatefulSet", "orders-general")
    kube.step()
    assert not kube.pods()
    kube.put("orders", FIVE)
    converge(kube)

    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert members(kube) == [f"orders-general-{ordinal}" for ordinal in range(5)]


def test_a_broker_that_began_to_go_and_was_scaled_away_by_hand_comes_back_on_its_disk():
    kube = started()
    kube.put("orders", SMALLEST)
    until(kube, lambda: drains(kube) == {"orders-general-4"})

    kube.scale("orders-general", 3)
    kube.step()
    kube.put("orders", FIVE)
    converge(kube)

    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert members(kube) == [f"orders-general-{ordinal}" for ordinal in range(5)]
    assert not drains(kube)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_crash_at_any_write_leads_to_the_same_end(policy):
    def check(kube):
        assert members(kube) == ["orders-general-0", "orders-general-1", "orders-general-2"]
        assert (claim("orders-general-4") in kube.objects) == (policy == "Retain")
        assert condition(kube, "Ready")["status"] == "True"

    shrunk = changed(SMALLEST, deletionPolicy=policy)
    kube = started(changed(FIVE, deletionPolicy=policy))
    crash_at_each_write(kube, [lambda kube: kube.put("orders", shrunk)], check)


def test_the_broker_that_leads_the_metadata_hands_that_over_before_it_goes():
    kube = started()
    kube.leader = "orders-general-4"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(members(kube)) == 3
    assert kube.leader != "orders-general-4"


def test_brokers_that_someone_added_and_that_joined_go_as_if_the_spec_had_named_them():
    kube = started(SMALLEST)
    kube.scale("orders-general", 5)
    for _ in range(5):
        kube.step()
    assert len(members(kube)) == 5
    converge(kube)
    assert len(members(kube)) == len(kube.pods()) == 3


def test_a_pool_that_was_renamed_grows_first_then_the_old_one_goes_with_its_set():
    kube = started(SMALLEST)
    renamed = changed(SMALLEST, pools=[{**SMALLEST["pools"][0], "name": "better", "replicas": 3}])
    kube.put("orders", renamed)
    least = []
    converge(kube, each=lambda: least.append(len(members(kube))))
    assert min(least) == 3
    assert max(least) == 6
    assert members(kube) == [f"orders-better-{ordinal}" for ordinal in range(3)]
    assert SET not in kube.objects
    assert claim("orders-general-0") in kube.objects
    assert condition(kube, "Ready")["status"] == "True"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert plan(kube)["blockedBy"] == "RemovedDisk"
    assert SET not in kube.objects


def test_fewer_brokers_than_a_topic_has_copies_are_refused_with_the_number_that_would_do():
    kube = started()
    kube.copies_needed = 4
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(members(kube)) == 5
    assert not kube.draining
    assert condition(kube, "SpecAccepted")["reason"] == "ShrinkRefused"
    assert "set replicas of pool general to 4" in condition(kube, "SpecAccepted")["message"]
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert len(members(kube)) == 4


def test_disks_that_could_not_take_what_the_others_have_refuse_a_shrink():
    kube = started()
    filled(kube, free=40, held=40)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert not kube.draining
    assert "would be 87 % full" in condition(kube, "SpecAccepted")["message"]
    assert "set replicas of pool general to 4" in condition(kube, "SpecAccepted")["message"]
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert len(members(kube)) == 4


def filled(kube, free, held):
    look = kube.brokers.look

    async def told(host):
        return replace(await look(host), bytes_free=free, bytes_held=held)

    kube.brokers.look = told


def test_a_drain_waits_for_its_window_and_one_that_has_begun_does_not():
    kube = started(changed(FIVE, updatePolicy=IN_WINDOWS))
    kube.put("orders", changed(SMALLEST, updatePolicy=IN_WINDOWS))
    converge(kube)
    assert plan(kube)["blockedBy"] == "MaintenanceWindow"
    assert not kube.draining
    kube.put("orders", SMALLEST)
    until(kube, lambda: drains(kube))
    kube.put("orders", changed(SMALLEST, updatePolicy=IN_WINDOWS))
    converge(kube)
    assert len(members(kube)) == 4
    assert plan(kube)["blockedBy"] == "MaintenanceWindow"


def test_a_member_that_does_not_serve_goes_no_further_and_nobody_else_does():
    kube = started()
    kube.unready.add("orders-general-1")
    kube.step()
    kube.put("orders", SMALLEST)
    converge(kube)
    assert not kube.draining
    assert len(members(kube)) == 5


def test_another_disk_under_the_same_name_is_not_taken_for_the_one_that_was_drained():
    kube = started()
    kube.put("orders", SMALLEST)
    until(kube, lambda: drains(kube))
    disk = kube.disks["shop", "claim", "orders-general-4"]
    kube.disks["shop", "claim", "orders-general-4"] = {"disk": "another", "cluster": "cluster-1"}
    kube.members["cluster-1"]["another"] = "orders-general-4"
    until(kube, lambda: kube.draining.get(disk["disk"], 0) == 0)
    for _ in range(5):
        Operator(kube).once()
    assert disk["disk"] in kube.members["cluster-1"]


def test_what_the_brokers_refuse_is_told_in_their_words():
    kube = started()
    kube.refuses_drains = "no other node could take over"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(members(kube)) == 5
    assert "no other node could take over" in plan(kube)["detail"]
    kube.refuses_drains = None
    converge(kube)
    assert len(members(kube)) == 3


def test_a_set_that_may_not_be_changed_keeps_a_broker_that_left_the_cluster_and_says_so():
    kube = started()
    kube.refused[SET] = Denied("patch StatefulSet: forbidden")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert plan(kube)["blockedBy"] == "Forbidden"
    assert kube.objects[SET]["spec"]["replicas"] == 5
    kube.refused.clear()
    converge(kube)
    assert len(kube.pods()) == len(members(kube)) == 3


def test_nobody_goes_from_a_cluster_that_hibernates_and_everyone_does_once_it_wakes():
    kube = started()
    kube.put("orders", changed(FIVE, hibernate=True))
    converge(kube)
    kube.put("orders", changed(SMALLEST, hibernate=True))
    converge(kube)
    assert plan(kube)["blockedBy"] == "Hibernated"
    assert len(members(kube)) == 5
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(kube.pods()) == len(members(kube)) == 3


def test_claims_of_a_pool_that_went_before_go_with_the_cluster_where_its_policy_says_so():
    kube = started(SMALLEST)
    renamed = changed(SMALLEST, pools=[{**SMALLEST["pools"][0], "name": "better"}])
    kube.put("orders", renamed)
    converge(kube)
    kube.put("orders", changed(renamed, deletionPolicy="Delete"))
    converge(kube)
    assert claim("orders-better-0") in kube.objects
    assert claim("orders-general-0") not in kube.objects
    kube.remove("WalrusCluster", "orders")
    for _ in range(5):
        Operator(kube).once()
        kube.step()
    assert not [ref for ref in kube.objects if ref.kind == CLAIM.name]
