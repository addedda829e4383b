"""Claims grow one after the other while their brokers serve; the StatefulSet is made anew over its pods."""

from copy import deepcopy
from datetime import timedelta

import pytest
from crashing import converge_over_crashes
from driving import Operator, condition, converge, status
from examples import changed, with_pool
from resizing import PODS, REMADE, SET, TEN, TWENTY, asked, has, is_quiet, rows, sized, started, template, told, uids
from simkube import SimKube
from walrus_operator.kube.api import Unreachable
from walrus_operator.objects import CLAIM, Ref, uid_of


def later(kube, minutes):
    """An operator that comes up some minutes from now."""
    operator = Operator(kube)
    operator.now += timedelta(minutes=minutes)
    return operator


def test_claims_grow_and_no_pod_restarts():
    kube = started()
    before = uids(kube)
    kube.put("orders", TWENTY)
    seen, phases = set(), set()
    converge(kube, each=lambda: (seen.add(tuple(asked(kube))), phases.add(status(kube)["phase"])))
    assert has(kube) == ["20Gi"] * 3
    assert template(kube) == "20Gi"
    assert uids(kube) == before
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in kube.pods().values()} == {0}
    assert seen == {("20Gi",) * grown + ("10Gi",) * (3 - grown) for grown in range(1, 4)}
    assert "Resizing" in phases
    assert condition(kube, "Ready")["status"] == "True"
    assert status(kube)["pools"][0]["storage"] == "20Gi"
    assert rows(kube) == dict.fromkeys(PODS, ("20Gi", "Bound"))
    assert REMADE not in kube.objects
    assert is_quiet(kube)
    assert any(message.startswith("Grow PersistentVolumeClaim data-orders-general-0") for message in told(kube))
    assert "the claim of orders-general-2 has 20Gi now, and had 10Gi" in told(kube)


def test_every_claim_is_grown_whatever_the_deletion_policy_says():
    policy = {"deletionPolicy": "Delete"}
    kube = started(TEN | policy)
    before = uids(kube)
    kube.put("orders", TWENTY | policy)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    assert uids(kube) == before


def test_a_class_that_cannot_is_refused_and_nothing_is_begun():
    kube = started(sized("10Gi", "standard"))
    before = (uids(kube), uid_of(kube.objects[SET]))
    kube.put("orders", changed(sized("20Gi", "standard"), version="2.0.0"))
    converge(kube)
    refused = condition(kube, "SpecAccepted")
    assert (refused["status"], refused["reason"]) == ("False", "ResizeRefused")
    assert "must support resize" in refused["message"]
    assert "set size back to 10Gi" in refused["message"]
    assert asked(kube) == ["10Gi"] * 3
    assert (uids(kube), uid_of(kube.objects[SET])) == before
    kube.put("orders", sized("10Gi", "standard"))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_nobody_knows_yet_whether_claims_can_grow():
    kube = started()
    kube.refused[Ref(CLAIM.name, "shop", "data-orders-general-0")] = Unreachable("failed calling webhook")
    kube.put("orders", TWENTY)
    converge(kube)
    assert asked(kube) == ["10Gi"] * 3
    assert status(kube)["plan"]["blockedBy"] == "Unanswered"
    kube.refused.clear()
    converge(kube)
    assert has(kube) == ["20Gi"] * 3


def test_a_quota_that_is_not_enough_for_all_is_told_and_the_size_goes_back():
    kube = started()
    kube.volumes.quota = "45Gi"
    kube.put("orders", TWENTY)
    converge(kube)
    assert asked(kube) == ["20Gi", "10Gi", "10Gi"]
    assert status(kube)["plan"]["blockedBy"] == "ResizeFailed"
    assert "exceeded quota" in status(kube)["plan"]["detail"]
    assert template(kube) == "10Gi"
    kube.put("orders", TEN)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert asked(kube) == ["20Gi", "10Gi", "10Gi"]
    assert is_quiet(kube)
    kube.volumes.quota = None
    kube.put("orders", TWENTY)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3


@pytest.mark.parametrize("back", ["10Gi", "15Gi"])
def test_a_driver_that_says_no_is_told_and_the_size_goes_back_or_to_something_between(back):
    kube = started()
    kube.volumes.infeasible.add("data-orders-general-0")
    kube.put("orders", TWENTY)
    converge(kube)
    assert asked(kube) == ["20Gi", "10Gi", "10Gi"]
    assert condition(kube, "StorageHealthy")["reason"] == "ResizeFailed"
    assert "no volume of 20Gi can be made" in condition(kube, "StorageHealthy")["message"]
    assert rows(kube)["orders-general-0"] == ("10Gi", "Refused")
    assert any("no volume of 20Gi can be made" in message for message in told(kube))
    kube.put("orders", sized(back))
    if back != "10Gi":
        Operator(kube).once()
        kube.volumes.infeasible.clear()
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert set(has(kube)) == {back}
    assert template(kube) == back
    assert is_quiet(kube)


def test_a_driver_that_is_away_is_waited_for_with_the_first_claim():
    kube = started()
    kube.volumes.is_away = True
    kube.put("orders", TWENTY)
    converge(kube)
    assert asked(kube) == ["20Gi", "10Gi", "10Gi"]
    assert status(kube)["plan"]["blockedBy"] == "Resizing"
    assert condition(kube, "StorageHealthy")["reason"] == "Resizing"
    assert condition(kube, "Ready")["reason"] == "Progressing"
    assert rows(kube)["orders-general-0"] == ("10Gi", "Growing")


def test_a_pod_restarts_only_where_its_file_system_still_waits_after_two_minutes():
    kube = started()
    before = uids(kube)
    kube.volumes.offline.add("orders-general-1")
    kube.put("orders", TWENTY)
    converge(kube)
    assert uids(kube) == before
    assert rows(kube)["orders-general-1"] == ("10Gi", "FileSystemGrowing")
    assert has(kube) == ["20Gi", "10Gi", "20Gi"]
    assert template(kube) == "20Gi"
    assert later(kube, 3).once().acts[-1] == "RollPod"
    assert any("its file system does not grow while it runs" in message for message in told(kube))
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    assert {pod for pod, uid in uids(kube).items() if before[pod] != uid} == {"orders-general-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_neither_windows_nor_a_full_disk_hold_up_growth_and_its_restarts():
    windows = {"updatePolicy": {"maintenanceWindows": ["Sun 02:00-05:00 UTC"]}}
    kube = started(TEN | windows)
    look, before = kube.brokers.look, uids(kube)

    async def full(host):
        broker = await look(host)
        return type(broker)(**{**vars(broker), "bytes_total": 100, "bytes_free": 1})

    kube.brokers.look = full
    kube.volumes.offline.update(PODS)
    kube.put("orders", changed(TWENTY | windows, version="2.0.0"))
    converge(kube)
    assert asked(kube) == ["20Gi"] * 3
    assert uids(kube) == before
    for _ in range(20):
        later(kube, 5).once()
        kube.step()
    assert has(kube) == ["20Gi"] * 3
    assert {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in kube.pods().values()} == {"2.0.0"}


def test_a_full_broker_that_does_not_serve_holds_up_no_claim():
    kube = started()
    kube.unready.add("orders-general-1")
    kube.step()
    kube.put("orders", TWENTY)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    assert template(kube) == "20Gi"


def test_a_pool_that_grows_in_both_ways_gets_larger_claims_for_new_brokers_too():
    kube = started()
    kube.put("orders", sized("20Gi", replicas=5))
    converge(kube)
    assert has(kube) == ["20Gi"] * 5
    assert condition(kube, "Ready")["status"] == "True"


def test_a_size_that_grows_again_in_the_middle():
    kube = started()
    kube.put("orders", TWENTY)
    operator = Operator(kube)
    while asked(kube)[0] == "10Gi":
        operator.once()
        kube.step()
    kube.put("orders", sized("30Gi"))
    converge(kube)
    assert has(kube) == ["30Gi"] * 3
    assert template(kube) == "30Gi"
    assert is_quiet(kube)


def test_a_size_below_what_the_claims_have_is_refused():
    kube = started(TWENTY)
    kube.put("orders", TEN)
    converge(kube)
    assert condition(kube, "SpecAccepted")["reason"] == "ResizeRefused"
    assert "set size back to 20Gi" in condition(kube, "SpecAccepted")["message"]


def test_a_set_that_is_on_its_way_out_is_waited_for_and_its_brokers_are_still_told_of():
    kube = started()
    before = uids(kube)
    kube.put("orders", TWENTY)
    operator = Operator(kube)
    while "deletionTimestamp" not in kube.objects[SET]["metadata"]:
        operator.once()
        if "deletionTimestamp" not in kube.objects[SET]["metadata"]:
            kube.step()
    for _ in range(3):
        operator.once()
        assert [row["state"] for row in status(kube)["brokers"]] == ["Serving"] * 3
    assert "made anew" in status(kube)["plan"]["detail"]
    kube.step()
    assert SET not in kube.objects
    done = operator.once()
    assert done.acts == ("Apply",)
    assert [row["state"] for row in status(kube)["brokers"]] == ["Serving"] * 3
    converge(kube)
    assert uids(kube) == before
    assert template(kube) == "20Gi"


def test_what_only_the_set_knew_is_there_again():
    """How many brokers were asked for, and that someone had asked for a restart."""
    kube = started()
    kube.objects[SET]["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "then"
    converge(kube)
    before = uids(kube)
    kube.nodes.limit_disks(3)
    kube.put("orders", sized("20Gi", replicas=6))
    converge(kube)
    assert template(kube) == "20Gi"
    assert kube.objects[SET]["spec"]["replicas"] == 4
    assert {pod: uid for pod, uid in uids(kube).items() if pod in before} == before


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_crash_at_any_write_leads_to_the_same_end(before):
    ready = started()
    pods, first = uids(ready), ready.writes

    def story(crash_at):
        kube = deepcopy(ready)
        kube.put("orders", TWENTY)
        kube.crash_at, kube.crash_before = None if crash_at is None else first + crash_at, before
        crashes = converge_over_crashes(kube)
        assert condition(kube, "Ready")["status"] == "True"
        assert has(kube) == ["20Gi"] * 3
        assert template(kube) == "20Gi"
        assert REMADE not in kube.objects
        assert uids(kube) == pods
        return kube.writes - first, crashes

    writes, _ = story(None)
    assert all(story(crash_at)[1] == 1 for crash_at in range(1, writes + 1))


@pytest.mark.parametrize("steps", range(1, 14))
def test_a_size_goes_back_whenever_it_is_said_while_a_claim_has_it(steps):
    kube = started()
    before = uids(kube)
    kube.put("orders", TWENTY)
    operator = Operator(kube)
    for _ in range(steps):
        operator.once()
        kube.step()
    smallest = min(has(kube))
    kube.put("orders", sized(smallest))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert template(kube) == smallest
    assert uids(kube) == before
    assert is_quiet(kube)


def test_a_cluster_that_hibernates_grows_once_it_is_awake():
    kube = started()
    kube.put("orders", changed(TEN, hibernate=True))
    converge(kube)
    kube.put("orders", changed(TWENTY, hibernate=True))
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "Hibernated"
    assert "once hibernate is false" in status(kube)["plan"]["detail"]
    kube.put("orders", TWENTY)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    assert condition(kube, "Ready")["status"] == "True"


def test_a_pool_that_leaves_while_its_set_is_made_anew():
    two = changed(TEN, pools=[*TEN["pools"], {"name": "more", "replicas": 3, "storage": {"claim": {"size": "10Gi"}}}])
    kube = SimKube()
    kube.put("orders", two)
    converge(kube)
    kube.put("orders", with_pool(two, storage=TWENTY["pools"][0]["storage"]))
    operator = Operator(kube)
    while SET in kube.objects and "deletionTimestamp" not in kube.objects[SET]["metadata"]:
        operator.once()
        if "deletionTimestamp" not in kube.objects[SET]["metadata"]:
            kube.step()
    kube.step()
    kube.put("orders", changed(two, pools=two["pools"][1:]))
    converge(kube)
    assert sorted(kube.pods()) == [f"orders-more-{ordinal}" for ordinal in range(3)]
    assert condition(kube, "Ready")["status"] == "True", status(kube)


def test_a_cluster_that_is_deleted_while_its_set_is_made_anew_leaves_pods_to_the_next_one_of_its_name():
    kube = started()
    before = uids(kube)
    kube.put("orders", TWENTY)
    operator = Operator(kube)
    while SET in kube.objects and "deletionTimestamp" not in kube.objects[SET]["metadata"]:
        operator.once()
        if "deletionTimestamp" not in kube.objects[SET]["metadata"]:
            kube.step()
    kube.remove("WalrusCluster", "orders")
    while kube.step():
        pass
    assert uids(kube) == before
    kube.put("orders", TWENTY)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert has(kube) == ["20Gi"] * 3
    assert len(kube.members["cluster-1"]) == 3


def test_the_claim_of_a_broker_that_went_stays_as_it_is():
    kube = started(sized("10Gi", replicas=4))
    kube.put("orders", TEN)
    converge(kube)
    kube.put("orders", TWENTY)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    left = kube.objects[Ref(CLAIM.name, "shop", "data-orders-general-3")]
    assert left["spec"]["resources"]["requests"]["storage"] == "10Gi"
