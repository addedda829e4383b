"""Orders are annotations of the WalrusCluster: brokers restart or hand over under the same gates, and it can be taken
back."""

from dataclasses import replace

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simkube import SimKube
from test_roll import restarted, uids
from walrus_operator.objects import CONFIG_MAP, POD, Ref

ROLL = "walrus.dev/roll"
DRAIN = "walrus.dev/drain"
FOUR = with_pool(SMALLEST, replicas=4)
FIVE = with_pool(SMALLEST, replicas=5)
DEPARTURES = Ref(CONFIG_MAP.name, "shop", "orders-departures")
SET = Ref("StatefulSet", "shop", "orders-general")
IN_WINDOWS = {"maintenanceWindows": ["Sun 02:00-05:00 UTC"]}


class Watched(SimKube):
    """Never two disks hand over at once, and no pod is evicted for an order that its template does not bear."""

    def step(self):
        handing = [disk for disk, left in self.draining.items() if left]
        assert len(handing) <= 1, handing
        return super().step()

    async def evict(self, ref, uid):
        ordered = self.objects[Ref("WalrusCluster", "shop", "orders")]["metadata"]["annotations"].get(ROLL)
        made_of = self.objects[SET]["spec"]["template"]["metadata"]["annotations"].get(ROLL)
        assert made_of == ordered
        await super().evict(ref, uid)


def started(spec=FOUR):
    kube = Watched()
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    return kube


def disk_of(kube, ordinal):
    return kube.identity(Ref(POD.name, "shop", f"orders-general-{ordinal}"))["disk"]


def plan(kube):
    return {"blockedBy": None, "detail": "", **status(kube).get("plan", {})}


def row(kube, pod):
    return next(one for one in status(kube)["brokers"] if one["pod"] == pod)


def messages(kube):
    return [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]


def is_quiet(kube):
    writes = kube.writes
    return Operator(kube).once().plan.is_idle and kube.writes == writes


def until(kube, reached):
    for _ in range(200):
        if reached():
            return
        Operator(kube).once()
        kube.step()
    raise AssertionError(status(kube))


def test_an_order_to_roll_restarts_every_broker_once_followers_first():
    kube = started(SMALLEST)
    order = restarted(kube, SMALLEST, annotations={ROLL: "1"})
    assert sorted(order) == sorted(kube.pods())
    assert order[-1] == "orders-general-0"
    assert {pod["metadata"]["annotations"][ROLL] for pod in kube.pods().values()} == {"1"}
    assert is_quiet(kube)
    before = uids(kube)
    kube.put("orders", SMALLEST, annotations={ROLL: "2"})
    converge(kube)
    assert not set(uids(kube).values()) & set(before.values())


def test_an_order_to_roll_that_is_taken_back_leaves_those_alone_that_have_not_restarted():
    kube = started(SMALLEST)
    before = uids(kube)
    kube.put("orders", SMALLEST, annotations={ROLL: "1"})
    until(kube, lambda: uids(kube) != before)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(set(uids(kube).values()) & set(before.values())) == 2
    assert is_quiet(kube)


def test_an_order_to_roll_waits_for_its_window_and_new_brokers_come_up_under_it():
    kube = started(changed(SMALLEST, updatePolicy=IN_WINDOWS))
    before = uids(kube)
    kube.put("orders", changed(SMALLEST, updatePolicy=IN_WINDOWS), annotations={ROLL: "1"})
    converge(kube)
    assert uids(kube) == before
    assert plan(kube)["blockedBy"] == "MaintenanceWindow"
    kube.put("orders", changed(FOUR, updatePolicy=IN_WINDOWS), annotations={ROLL: "1"})
    converge(kube)
    assert kube.pods()["orders-general-3"]["metadata"]["annotations"][ROLL] == "1"


def test_an_order_to_roll_leaves_what_kubectl_rollout_restart_wrote():
    kube = started(SMALLEST)
    restart = "kubectl.kubernetes.io/restartedAt"
    kube.objects[SET]["spec"]["template"]["metadata"]["annotations"][restart] = "t"
    kube.objects[SET]["metadata"]["generation"] += 1
    kube.put("orders", SMALLEST, annotations={ROLL: "1"})
    converge(kube)
    told = [pod["metadata"]["annotations"] for pod in kube.pods().values()]
    assert {(one[restart], one[ROLL]) for one in told} == {("t", "1")}


def test_a_broker_hands_over_what_it_has_and_stays_until_the_order_is_taken_back():
    kube = started()
    disk = disk_of(kube, 1)
    kube.put("orders", FOUR, annotations={DRAIN: disk})
    phases = set()
    converge(kube, each=lambda: phases.add(status(kube)["phase"]))
    assert kube.draining == {disk: 0}
    assert "Draining" in phases
    assert status(kube)["phase"] == "Running"
    assert len(kube.members["cluster-1"]) == len(kube.pods()) == 4
    assert row(kube, "orders-general-1")["drainPercent"] == 100
    assert condition(kube, "Ready")["status"] == "True"
    assert "orders-general-1 has handed over what it had" in condition(kube, "Ready")["message"]
    assert is_quiet(kube)
    assert messages(kube).count("orders-general-1 has handed over what it had") == 1
    kube.put("orders", FOUR)
    converge(kube)
    assert not kube.draining
    assert DEPARTURES not in kube.objects
    assert any(message.startswith("Keep orders-general-1") for message in messages(kube))
    assert is_quiet(kube)


def test_while_a_broker_hands_over_it_is_told_what_it_still_has():
    kube = started()
    kube.put("orders", FOUR, annotations={DRAIN: disk_of(kube, 1)})
    until(kube, lambda: plan(kube)["blockedBy"] == "Draining")
    assert "orders-general-1 hands over what it has, as walrus.dev/drain says" in plan(kube)["detail"]
    assert (condition(kube, "Ready")["status"], condition(kube, "Ready")["reason"]) == ("False", "Progressing")


def test_another_disk_in_the_order_takes_the_first_one_back_before_it_begins():
    kube = started(FIVE)
    kube.put("orders", FIVE, annotations={DRAIN: disk_of(kube, 1)})
    until(kube, lambda: kube.draining)
    kube.put("orders", FIVE, annotations={DRAIN: disk_of(kube, 2)})
    converge(kube)
    assert kube.draining == {disk_of(kube, 2): 0}


def test_a_broker_that_was_emptied_restarts_with_the_others_and_stays_empty():
    kube = started()
    disk = disk_of(kube, 1)
    kube.put("orders", FOUR, annotations={DRAIN: disk})
    converge(kube)
    before = uids(kube)
    kube.put("orders", changed(FOUR, version="2.0.0"), annotations={DRAIN: disk})
    converge(kube)
    assert not set(uids(kube).values()) & set(before.values())
    assert kube.draining == {disk: 0}
    assert condition(kube, "Ready")["status"] == "True"


def test_no_other_broker_restarts_while_the_emptied_one_is_away():
    kube = started()
    kube.put("orders", FOUR, annotations={DRAIN: disk_of(kube, 1)})
    converge(kube)
    kube.unready.add("orders-general-1")
    kube.step()
    before = uids(kube)
    kube.put("orders", changed(FOUR, version="2.0.0"), annotations={DRAIN: disk_of(kube, 1)})
    converge(kube)
    assert {name for name, uid in uids(kube).items() if before[name] != uid} <= {"orders-general-1"}
    kube.unready.clear()
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_a_broker_that_was_emptied_goes_with_a_shrink_and_no_second_one_is_emptied_meanwhile():
    kube = started(FIVE)
    disk = disk_of(kube, 4)
    kube.put("orders", FIVE, annotations={DRAIN: disk})
    converge(kube)
    kube.put("orders", SMALLEST, annotations={DRAIN: disk})
    converge(kube)
    assert len(kube.members["cluster-1"]) == len(kube.pods()) == 3
    assert plan(kube)["blockedBy"] == "DrainRefused"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize("ordinal", [1, 4], ids=["stays", "goes"])
def test_a_shrink_waits_until_the_broker_that_stays_has_handed_over(ordinal):
    kube = started(FIVE)
    disk = disk_of(kube, ordinal)
    kube.put("orders", FIVE, annotations={DRAIN: disk})
    until(kube, lambda: kube.draining)
    kube.put("orders", FOUR, annotations={DRAIN: disk})
    converge(kube)
    assert len(kube.members["cluster-1"]) == 4


def test_an_order_that_leaves_too_few_brokers_for_the_copies_is_refused():
    kube = started(SMALLEST)
    kube.put("orders", SMALLEST, annotations={DRAIN: disk_of(kube, 1)})
    converge(kube)
    assert not kube.draining
    assert plan(kube)["blockedBy"] == "DrainRefused"
    assert "2 brokers would be left for them: add a broker first" in plan(kube)["detail"]
    assert condition(kube, "SpecAccepted")["status"] == "True"


def test_an_order_that_would_fill_the_other_disks_is_refused():
    kube = started()
    look = kube.brokers.look

    async def told(host):
        return replace(await look(host), bytes_free=20, bytes_held=40)

    kube.brokers.look = told
    kube.put("orders", FOUR, annotations={DRAIN: disk_of(kube, 1)})
    converge(kube)
    assert not kube.draining
    assert "would be 94 % full, and 85 % is the most" in plan(kube)["detail"]


@pytest.mark.parametrize("order", ["orders-general-1", "x" * 1000, "\x1b[2J"])
def test_an_order_that_names_no_disk_is_told_with_where_they_are(order):
    kube = started()
    kube.put("orders", FOUR, annotations={DRAIN: order})
    converge(kube)
    assert not kube.draining
    assert plan(kube)["blockedBy"] == "DrainRefused"
    assert "status.brokers tells the uuid of each" in plan(kube)["detail"]
    assert len(plan(kube)["detail"]) < 300
    assert "\x1b" not in plan(kube)["detail"]


def test_an_order_to_drain_waits_for_its_window_and_one_that_has_begun_does_not():
    held = changed(FOUR, updatePolicy=IN_WINDOWS)
    kube = started(held)
    disk = disk_of(kube, 1)
    kube.put("orders", held, annotations={DRAIN: disk})
    converge(kube)
    assert not kube.draining
    assert plan(kube)["blockedBy"] == "MaintenanceWindow"
    kube.put("orders", FOUR, annotations={DRAIN: disk})
    until(kube, lambda: kube.draining)
    kube.put("orders", held, annotations={DRAIN: disk})
    converge(kube)
    assert kube.draining == {disk: 0}


def test_a_disk_that_died_after_it_was_emptied_can_be_replaced():
    kube = started()
    disk = disk_of(kube, 1)
    kube.put("orders", FOUR, annotations={DRAIN: disk})
    converge(kube)
    kube.nodes.forget(kube.pods()["orders-general-1"]["spec"]["nodeName"])
    converge(kube)
    kube.put("orders", FOUR, annotations={DRAIN: disk, "walrus.dev/replace": disk})
    converge(kube)
    assert disk not in kube.members["cluster-1"]
    assert len(kube.members["cluster-1"]) == 4
    kube.put("orders", FOUR)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize("taken_back", [False, True], ids=["given", "taken_back"])
def test_a_crash_at_any_write_of_an_order_leads_to_the_same_end(taken_back):
    kube = started()
    disk = disk_of(kube, 1)
    given = {DRAIN: disk, ROLL: "1"}
    if taken_back:
        kube.put("orders", FOUR, annotations=given)
        converge(kube)

    def check(kube):
        assert kube.draining == ({} if taken_back else {disk: 0})
        assert (DEPARTURES in kube.objects) != taken_back
        assert {pod["metadata"]["annotations"][ROLL] for pod in kube.pods().values()} == {"1"}
        assert condition(kube, "Ready")["status"] == "True"

    annotations = {} if taken_back else given
    crash_at_each_write(kube, [lambda kube: kube.put("orders", FOUR, annotations=annotations)], check)
