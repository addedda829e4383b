"""Claims that grow by themselves, a step at a time, as their disks fill up."""

from copy import deepcopy

import pytest
from crashing import converge_over_crashes
from driving import condition, converge, status
from examples import SMALLEST, with_pool
from resizing import TEN, asked, fill, has, is_quiet, started, template, told, uids
from walrus_operator.objects import Ref


def growing(size="10Gi", **auto):
    told = {"at": 80, "step": "5Gi", "max": "20Gi", **auto}
    return with_pool(SMALLEST, storage={"claim": {"size": size, "storageClassName": "expandable", "autoGrow": told}})


def test_claims_grow_by_themselves_a_step_at_a_time_and_the_spec_stays():
    kube = started(growing())
    before = uids(kube)
    fill(kube, "orders-general-1", 79)
    converge(kube)
    assert has(kube) == ["10Gi"] * 3
    fill(kube, "orders-general-1", 80)
    converge(kube)
    assert has(kube) == ["15Gi"] * 3
    assert template(kube) == "15Gi"
    assert status(kube)["pools"][0]["storage"] == "15Gi"
    fill(kube, "orders-general-2", 125)
    converge(kube)
    assert has(kube) == ["20Gi"] * 3
    assert uids(kube) == before
    assert condition(kube, "StorageHealthy")["status"] == "True"
    assert kube.objects[Ref("WalrusCluster", "shop", "orders")]["spec"] == growing()
    assert is_quiet(kube)


def test_claims_that_are_as_large_as_they_may_be_say_so_and_how_to_go_on():
    kube = started(growing(max="12Gi"))
    fill(kube, "orders-general-0", 100)
    converge(kube)
    assert has(kube) == ["12Gi"] * 3
    told_of = condition(kube, "StorageHealthy")
    assert (told_of["status"], told_of["reason"]) == ("False", "AutoGrowExhausted")
    assert "autoGrow.max (12Gi)" in told_of["message"]
    assert "orders-general-0 80 %" in told_of["message"]
    assert any("autoGrow.max (12Gi)" in message for message in told(kube))
    assert is_quiet(kube)
    kube.put("orders", growing(max="15Gi"))
    converge(kube)
    assert has(kube) == ["15Gi"] * 3
    assert condition(kube, "StorageHealthy")["status"] == "True"


def test_a_step_waits_until_file_systems_have_followed_the_one_before():
    kube = started(growing(max="100Gi"))
    fill(kube, "orders-general-0", 85)
    kube.volumes.offline.add("orders-general-0")
    converge(kube)
    assert asked(kube) == ["15Gi"] * 3
    assert template(kube) == "15Gi"


def test_brokers_that_come_later_get_claims_as_large_as_the_others():
    kube = started(growing())
    fill(kube, "orders-general-0", 85)
    converge(kube)
    kube.put("orders", with_pool(growing(), replicas=4))
    converge(kube)
    assert has(kube) == ["15Gi"] * 4
    assert condition(kube, "Ready")["status"] == "True"


def test_claims_that_grew_by_themselves_stay_as_they_are_without_it():
    kube = started(growing())
    fill(kube, "orders-general-0", 85)
    converge(kube)
    before = uids(kube)
    kube.put("orders", TEN)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert has(kube) == ["15Gi"] * 3
    assert uids(kube) == before
    assert is_quiet(kube)


def test_a_class_that_cannot_grow_is_told_when_a_disk_fills_up():
    spec = growing()
    del spec["pools"][0]["storage"]["claim"]["storageClassName"]
    kube = started(spec)
    fill(kube, "orders-general-0", 85)
    converge(kube)
    assert has(kube) == ["10Gi"] * 3
    assert status(kube)["plan"]["blockedBy"] == "ResizeFailed"
    assert "must support resize" in status(kube)["plan"]["detail"]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_crash_at_any_write_of_a_step_is_no_second_step(before):
    ready = started(growing(max="100Gi"))
    pods, first = uids(ready), ready.writes

    def story(crash_at):
        kube = deepcopy(ready)
        fill(kube, "orders-general-0", 85)
        kube.crash_at, kube.crash_before = None if crash_at is None else first + crash_at, before
        crashes = converge_over_crashes(kube)
        assert has(kube) == ["15Gi"] * 3
        assert uids(kube) == pods
        return kube.writes - first, crashes

    writes, _ = story(None)
    assert all(story(crash_at)[1] == 1 for crash_at in range(1, writes + 1))
