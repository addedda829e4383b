"""Brokers restart when someone asks for it, and only when it suits: in windows, and while no disk is nearly full."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from test_roll import restarted, uids
from walrus_operator.api.updates import Window
from walrus_operator.objects import Ref

SET = Ref("StatefulSet", "shop", "orders-general")
RESTARTED = "kubectl.kubernetes.io/restartedAt"
IN_WINDOWS = changed(SMALLEST, updatePolicy={"maintenanceWindows": ["Sun 02:00-05:00 UTC"]})
NEWER = changed(IN_WINDOWS, version="2.0.0")
# Operators of these tests begin on a Thursday.
SUNDAY = timedelta(days=3, hours=2)


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def rollout_restart(kube, at):
    """What `kubectl rollout restart` does."""
    found = kube.objects[SET]
    found["spec"]["template"]["metadata"].setdefault("annotations", {})[RESTARTED] = at
    found["metadata"]["generation"] += 1


def fill(kube, name):
    """A disk of this broker that is nearly full."""
    look = kube.brokers.look

    async def told(host):
        broker = await look(host)
        (pod,) = (pod for pod in kube.pods().values() if pod["status"].get("podIP") == host)
        return replace(broker, bytes_free=4) if pod["metadata"]["name"] == name else broker

    kube.brokers.look = told
    return look


def test_a_restart_that_kubectl_asks_for_is_a_roll_and_nobody_fights_over_it():
    kube = started()
    rollout_restart(kube, "2026-01-01T00:00:00Z")
    order = restarted(kube, SMALLEST)
    assert sorted(order) == sorted(kube.pods())
    assert order[-1] == "orders-general-0"
    told = {pod["metadata"]["annotations"][RESTARTED] for pod in kube.pods().values()}
    assert told == {"2026-01-01T00:00:00Z"}
    assert condition(kube, "Ready")["status"] == "True"
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes
    messages = [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert any("as someone asked" in message for message in messages)


def test_a_restart_that_was_asked_for_twice_is_done_twice_and_one_that_was_taken_back_not_at_all():
    kube = started()
    for at in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"):
        before = uids(kube)
        rollout_restart(kube, at)
        converge(kube)
        assert not set(uids(kube).values()) & set(before.values())
    before = uids(kube)
    del kube.objects[SET]["spec"]["template"]["metadata"]["annotations"][RESTARTED]
    kube.objects[SET]["metadata"]["generation"] += 1
    converge(kube)
    assert uids(kube) == before


def test_a_spec_that_changes_meanwhile_leaves_the_request_as_it_is():
    kube = started()
    rollout_restart(kube, "2026-01-01T00:00:00Z")
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    assert kube.objects[SET]["spec"]["template"]["metadata"]["annotations"][RESTARTED] == "2026-01-01T00:00:00Z"
    assert condition(kube, "Ready")["status"] == "True"


def test_a_restart_waits_until_the_others_have_caught_up():
    kube = started()
    kube.behind.add("orders-general-2")
    rollout_restart(kube, "2026-01-01T00:00:00Z")
    before = uids(kube)
    converge(kube)
    assert {name for name, uid in uids(kube).items() if before[name] != uid} <= {"orders-general-2"}
    assert status(kube)["plan"]["blockedBy"] == "NotCaughtUp"


def test_a_roll_waits_for_its_window_and_says_when_that_opens():
    kube = started(IN_WINDOWS)
    before = uids(kube)
    kube.put("orders", NEWER)
    converge(kube)
    assert uids(kube) == before
    assert status(kube)["plan"]["blockedBy"] == "MaintenanceWindow"
    assert "2026-01-04T02:00Z" in status(kube)["plan"]["detail"]
    assert condition(kube, "Ready")["reason"] == "Blocked"
    assert status(kube)["phase"] == "Running"
    operator = Operator(kube)
    writes = kube.writes
    operator.once()
    assert kube.writes == writes
    operator.now += SUNDAY
    for _ in range(30):
        operator.once()
        kube.step()
    assert not set(uids(kube).values()) & set(before.values())
    assert condition(kube, "Ready")["status"] == "True"


def test_a_window_that_closes_in_the_middle_of_a_roll_stops_it_between_two_brokers():
    kube = started(IN_WINDOWS)
    before = uids(kube)
    kube.put("orders", NEWER)
    operator = Operator(kube)
    operator.now += SUNDAY
    while not set(uids(kube).values()) - set(before.values()):
        operator.once()
        kube.step()
    converge(kube)  # it is Thursday again
    assert len(set(uids(kube).values()) - set(before.values())) == 1
    assert status(kube)["readyReplicas"] == 3
    assert status(kube)["plan"]["blockedBy"] == "MaintenanceWindow"


def test_growth_settings_and_repairs_wait_for_no_window():
    kube = started(IN_WINDOWS)
    kube.put("orders", changed(with_pool(NEWER, replicas=4), segments={"maxEntries": 7}))
    converge(kube)
    assert status(kube)["readyReplicas"] == 4
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    assert status(kube)["readyReplicas"] == 4


def test_a_release_that_does_not_come_up_is_taken_back_outside_of_windows():
    kube = started(IN_WINDOWS)
    kube.broken.add("walrus/walrus-node:2.0.0")
    kube.put("orders", NEWER)
    operator = Operator(kube)
    operator.now += SUNDAY
    for _ in range(6):
        operator.once()
        kube.step()
    assert status(kube)["readyReplicas"] == 2
    kube.put("orders", IN_WINDOWS)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_no_roll_begins_while_a_disk_is_nearly_full_and_growth_goes_on():
    kube = started()
    before = uids(kube)
    look = fill(kube, "orders-general-1")
    kube.put("orders", with_pool(changed(SMALLEST, version="2.0.0"), replicas=4))
    converge(kube)
    assert uids(kube).items() >= before.items()
    assert status(kube)["readyReplicas"] == 4
    assert status(kube)["plan"]["blockedBy"] == "DiskPressure"
    assert "orders-general-1" in status(kube)["plan"]["detail"]
    kube.brokers.look = look
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert not set(uids(kube).values()) & set(before.values())


@pytest.mark.parametrize(
    ("text", "inside", "outside", "opens"),
    [
        ("Sun 02:00-05:00 UTC", "04 02:00", "04 05:00", "11 02:00"),
        ("Sun 02:00-05:00 UTC", "04 04:59", "04 01:59", "04 02:00"),
        ("Mon-Fri 22:00-04:00 UTC", "03 03:00", "04 03:00", "05 22:00"),
        ("Sat-Mon 00:00-12:00 UTC", "05 11:59", "06 00:00", "10 00:00"),
        ("daily 23:30-00:30 UTC", "06 00:29", "06 00:30", "06 23:30"),
    ],
)
def test_a_window_is_open_when_it_says_so(text, inside, outside, opens):
    window = Window.parse(text)
    inside, outside, opens = (
        datetime.strptime(f"2026-01-{at} +0000", "%Y-%m-%d %H:%M %z") for at in (inside, outside, opens)
    )
    assert window.is_open(inside)
    assert not window.is_open(outside)
    assert window.next_after(outside) == opens


def test_a_window_of_a_whole_day_is_never_closed():
    window = Window.parse("daily 00:00-00:00 UTC")
    assert all(window.is_open(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=17 * step)) for step in range(700))
