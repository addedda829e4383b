"""The whole operator in a time that is counted: what it does when its surroundings are slow, closed or contrary."""

import asyncio
import logging
from dataclasses import replace

import pytest
from driving import KEY
from examples import SMALLEST, changed, with_pool
from operating import World
from virtual import run, until
from walrus_operator.kube.api import Denied, Missing, Unreachable
from walrus_operator.objects import LEASE, Ref
from walrus_operator.runtime.unwatched import Unwatched

TEN_MINUTES = 600.0


def story(tell):
    """`await tell(world)` in a world that moves."""

    async def told():
        async with World().moving() as world:
            await tell(world)

    run(told())


# Machines


def test_a_node_that_is_lost_with_the_operator_on_it_is_replaced_in_time():
    """Nobody who saw the beginning is there any more: since when its broker is away, Kubernetes knows."""

    async def tell(world):
        world.kube.put("orders", changed(SMALLEST, lostAfter="20s"))
        world.start("one")
        await until(world.is_ready, 60)
        await asyncio.sleep(TEN_MINUTES)
        before = {*world.kube.members["cluster-1"]}
        world.kube.nodes.forget("node-1")
        await world.kill("one")
        world.start("two")
        replaced = await until(lambda: {*world.kube.members["cluster-1"]} - before and world.is_ready(), 20 + 90)
        assert replaced > 20
        assert len(world.kube.members["cluster-1"]) == 3

    story(tell)


# Namespaces


@pytest.mark.parametrize("error", [Denied, Missing, Unreachable])
@pytest.mark.parametrize("verbs", [None, ("list",)])
def test_a_namespace_that_does_not_answer_stops_only_itself_and_is_tried_again(error, verbs):
    async def tell(world):
        heal = world.server.fail(error, verbs, namespace="closed")
        world.kube.put("orders", SMALLEST)
        world.kube.put("bills", SMALLEST, namespace="closed")
        operator = world.start(namespaces=("closed", "shop"))
        await until(world.is_ready, 60)
        assert closed(operator) == {"closed": 1, "shop": 0}
        await asyncio.sleep(TEN_MINUTES)
        assert operator.health.troubles() == []
        world.kube.put("orders", with_pool(SMALLEST, replicas=4))
        await until(lambda: world.status().get("readyReplicas") == 4, 60)
        heal()
        await until(lambda: world.is_ready("bills", "closed"), 180)
        assert closed(operator) == {"closed": 0, "shop": 0}

    story(tell)


def test_a_namespace_that_may_be_listed_and_not_watched_is_listed_more_often_and_harms_no_other():
    """Its watch was taken for a deaf operator, which Kubernetes then killed again and again."""

    async def tell(world):
        world.server.unwatched.add("closed")
        world.kube.put("orders", SMALLEST)
        world.kube.put("bills", SMALLEST, namespace="closed")
        operator = world.start(namespaces=("closed", "shop"))
        await until(lambda: world.is_ready() and world.is_ready("bills", "closed"), 120)
        await asyncio.sleep(TEN_MINUTES)
        assert operator.health.troubles() == []
        deaf = operator.metrics.registry.get_sample_value
        told = {name: deaf("walrus_operator_namespace_deaf", {"namespace": name}) for name in ("closed", "shop")}
        assert told == {"closed": 1, "shop": 0}
        world.kube.put("bills", changed(SMALLEST, segments={"maxEntries": 7}), namespace="closed")
        await until(lambda: 7 in [told.get("segments.max_entries") for _, told in world.kube.config.values()], 10)
        world.server.unwatched.add("shop")
        world.kube.put("orders", changed(SMALLEST, segments={"maxEntries": 8}))
        await until(lambda: operator.health.troubles(), 240)

    story(tell)


def test_a_namespace_whose_role_is_taken_away_and_given_back_is_listened_to_again():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        operator = world.start(namespaces=("shop", "other"))
        await until(world.is_ready, 60)
        heal = world.server.fail(Denied, namespace="shop")
        await until(lambda: closed(operator)["shop"], 90)
        heal()
        await until(lambda: not closed(operator)["shop"], 90)
        world.kube.put("orders", with_pool(SMALLEST, replicas=4))
        await until(lambda: world.status().get("replicas") == 4, 5)

    story(tell)


def closed(operator):
    samples = [sample for metric in operator.metrics.registry.collect() for sample in metric.samples]
    return {one.labels["namespace"]: one.value for one in samples if one.name == "walrus_operator_namespace_closed"}


def test_a_cluster_that_nobody_watches_any_more_says_so():
    """Its row said Running for ever, where its namespace was taken out of those that are watched."""

    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        await world.kill("one")
        before = world.status()
        world.start("two", namespaces=("other",), marks_unwatched=True)
        await until(lambda: world.status()["phase"] == "NotWatched", 90)
        assert world.status() == {**before, "phase": "NotWatched"}
        marked = asyncio.get_running_loop().time()
        await asyncio.sleep(TEN_MINUTES)
        assert world.server.count(("patch", "create", "delete", "update"), marked + 1) == 0

    story(tell)


def test_a_cluster_that_another_operator_watches_is_marked_once_and_told_of_again():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        stranger = Unwatched(world.kube, ("other",))
        await stranger.once()
        assert world.status()["phase"] == "NotWatched"
        await until(lambda: world.status()["phase"] == "Running", 130)
        await stranger.once()
        assert world.status()["phase"] == "Running"

    story(tell)


def test_an_operator_that_may_not_look_into_other_namespaces_looks_after_its_own(caplog):
    async def tell(world):
        world.server.fail(Denied, ("list",), namespace="*")
        world.kube.put("orders", SMALLEST)
        operator = world.start(marks_unwatched=True)
        await until(world.is_ready, 60)
        await asyncio.sleep(TEN_MINUTES)
        assert operator.health.troubles() == []

    story(tell)
    assert len([one for one in caplog.records if "nobody watches cannot be marked" in one.message]) == 1


# Rest


def test_figures_that_move_with_traffic_are_written_once_a_minute():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        loop, load = asyncio.get_running_loop(), asyncio.ensure_future(_load(world))
        began = loop.time()
        while loop.time() < began + TEN_MINUTES:
            await asyncio.sleep(5)
            for operator, _ in world.operators.values():
                operator._queue.add(KEY)  # as if its StatefulSets were busy, too
        load.cancel()
        assert world.server.count(("patch",), began, "WalrusCluster/status") <= TEN_MINUTES / 60 + 1
        assert world.server.count(("create",), began, "Event") == 0

    story(tell)


async def _load(world):
    """Leaders move each second, figures rise and fall."""
    for number in range(10**6):
        world.kube.leader = f"orders-general-{number % 3}"
        world.figures = lambda broker, at=number: replace(
            broker, segments_led=at, under_replicated=1 + at % 7, term=at, bytes_free=20 + at % 50
        )
        await asyncio.sleep(1)


def test_a_status_of_which_an_older_definition_knows_only_a_part_is_told_once_and_written_ever_more_rarely(caplog):
    async def tell(world):
        world.server.pruned = ("replication", "pools", "conditions")
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(lambda: world.status().get("readyReplicas") == 3, 60)
        await asyncio.sleep(60)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(TEN_MINUTES)
        assert world.server.count(("patch",), began, "WalrusCluster/status") <= 5
        told = [one for one in caplog.messages if "was stored as another one" in one]
        assert len(told) == 1
        assert "shop/orders: the status was stored as another one (conditions, pools)" in told[0]
        assert blocked(world) == {"Contested"}
        world.server.pruned = ()
        await until(lambda: world.is_ready() and not blocked(world), 960)

    story(tell)


def blocked(world):
    """The gates that metrics tell of."""
    (operator, _), *_ = world.operators.values()
    (family,) = operator.metrics.blocked.collect()
    return {sample.labels["gate"] for sample in family.samples if sample.value}


def test_what_a_webhook_changes_after_each_apply_is_told_and_tried_ever_more_rarely():
    def webhook(stored):
        if stored["kind"] == "StatefulSet":
            stored["spec"]["template"]["spec"].setdefault("tolerations", []).append({"key": "spot"})
            stored["spec"]["template"]["spec"]["volumes"].append({"name": "agent", "emptyDir": {}})

    async def tell(world):
        world.server.webhook = webhook
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(lambda: world.status().get("readyReplicas") == 3, 120)
        await asyncio.sleep(60)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(TEN_MINUTES)
        assert world.status()["plan"]["blockedBy"] == "Contested"
        assert "StatefulSet orders-general" in world.status()["plan"]["detail"]
        assert world.server.count(("patch",), began, "StatefulSet") <= 5
        assert world.server.count(("patch",), began, "WalrusCluster/status") <= TEN_MINUTES / 60 + 1
        world.server.webhook = lambda _: None
        await until(world.is_ready, 960)

    story(tell)


@pytest.mark.parametrize("gate", ["PodPending", "NotCaughtUp"])
def test_a_gate_that_stays_closed_is_looked_at_ever_more_rarely(gate):
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        if gate == "PodPending":
            world.kube.stuck.add("orders-general-1")
            world.kube.remove("Pod", "orders-general-1")
        else:
            world.kube.behind.add("orders-general-0")
            world.kube.put("orders", changed(SMALLEST, version="2.0.0"))
        await until(lambda: world.status().get("plan", {}).get("blockedBy") == gate, 60)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(TEN_MINUTES)
        assert world.server.count(("get", "list"), began) <= TEN_MINUTES * 0.5
        world.kube.stuck.clear()
        world.kube.behind.clear()
        await until(world.is_ready, 120)

    story(tell)


# What people see


def test_a_lost_disk_is_told_within_ten_seconds_with_the_way_out_and_until_it_is_taken():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        old = world.kube.identity(Ref("Pod", "shop", "orders-general-1"))["disk"]
        world.kube.remove("Pod", "orders-general-1")
        world.kube.remove("PersistentVolumeClaim", "data-orders-general-1")
        lost = Ref("Pod", "shop", "orders-general-1")
        await until(lambda: world.kube.objects.get(lost, {}).get("status", {}).get("conditions"), 30)  # on a new one
        await until(lambda: world.condition("StorageHealthy").get("reason") == "LostDisk", 10)
        new = world.kube.identity(lost)["disk"]
        assert f"walrus cluster replace {old} --by {new}" in world.condition("StorageHealthy")["message"]
        assert not world.is_ready()
        assert world.status()["phase"] == "Degraded"
        members = {row["uuid"]: row["state"] for row in world.status()["members"]}
        assert members[old] == "Lost"
        assert sorted(members.values()) == ["Alive", "Alive", "Alive", "Lost"]
        await asyncio.sleep(5)
        told = [found for ref, found in world.kube.objects.items() if ref.kind == "Event"]
        assert [one for one in told if one["reason"] == "StorageUnhealthy" and old in one["message"]]
        (cluster,) = world.kube.members
        del world.kube.members[cluster][old]  # walrus cluster replace
        await until(world.is_ready, 30)
        assert world.condition("StorageHealthy")["status"] == "True"

    story(tell)


def test_a_cluster_all_of_whose_disks_are_new_is_lost_and_not_founded_again():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        for number in range(3):
            world.kube.remove("Pod", f"orders-general-{number}")
            world.kube.remove("PersistentVolumeClaim", f"data-orders-general-{number}")
        await until(lambda: world.condition("Available").get("reason") == "LostCluster", 30)
        assert "cluster-1" in world.condition("Available")["message"]
        assert world.status()["phase"] == "Lost"
        await asyncio.sleep(TEN_MINUTES)
        assert {disk["cluster"] for disk in world.kube.disks.values()} == {""}

    story(tell)


# The lease


def test_at_three_seconds_a_call_the_lease_is_held_and_the_end_is_the_same():
    def lived(seconds):
        made = {}

        async def tell(world):
            world.server.seconds = seconds
            names = [f"orders{number}" for number in range(4)]
            for name in names:
                world.kube.put(name, SMALLEST)
            operator = world.start()
            await until(lambda: operator.lease.held, 60)
            loop = asyncio.get_running_loop()
            began = loop.time()
            while loop.time() < began + TEN_MINUTES:
                await asyncio.sleep(0.5)
                assert operator.lease.held, f"lost after {loop.time() - began:.0f} s"
            await until(lambda: all(world.is_ready(name) for name in names), TEN_MINUTES)
            assert world.operators["one"][1].done() is False
            made.update(
                {
                    str(ref): found["spec"]
                    for ref, found in world.kube.objects.items()
                    if "spec" in found and ref.kind not in (LEASE.name, "Pod")
                }
            )

        story(tell)
        return made

    assert lived(3.0) == lived(0.0)


def test_a_second_operator_stands_by_says_so_and_takes_over(caplog):
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start("one")
        await until(world.is_ready, 60)
        other = world.start("other")
        await asyncio.sleep(60)
        assert not other.lease.held
        assert other.health.troubles() == []
        said = [record.message for record in caplog.records if "standing by" in record.message]
        assert len(said) == 1
        assert "held by one" in said[0]
        await world.kill("one")
        await until(lambda: other.lease.held, 60)
        world.kube.put("orders", with_pool(SMALLEST, replicas=4))
        await until(lambda: world.status().get("readyReplicas") == 4, 90)

    caplog.set_level(logging.INFO, "walrus_operator")
    story(tell)


def test_an_operator_whose_lease_is_taken_in_the_middle_of_a_pass_writes_nothing_more():
    """Its clients' calls take long, its renewals fail: each write is asked where it is sent, Admin calls, too."""

    async def tell(world):
        world.kube.put("orders", SMALLEST)
        one = world.start("one")
        await until(world.is_ready, 60)
        world.server.seconds = 2.5
        world.kube.put("orders", with_pool(changed(SMALLEST, segments={"maxEntries": 5}, version="2.0.0"), replicas=5))
        one._lease_kube.replace = _unreachable
        other = world.start("other")
        await until(lambda: other.lease.held, 120)
        assert not one.lease.held
        await until(lambda: world.status().get("readyReplicas") == 5, 900)

    story(tell)


async def _unreachable(manifest):
    raise Unreachable("update Lease: no answer")


def test_lists_that_are_old_change_nothing_of_the_end():
    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        for _ in range(40):
            await asyncio.sleep(3)
            world.server.stale = not world.server.stale
        world.server.stale = False
        await until(world.is_ready, 90)
        assert len({disk["cluster"] for disk in world.kube.disks.values()}) == 1
        assert world.kube.objects[Ref("StatefulSet", "shop", "orders-general")]["spec"]["replicas"] == 3

    story(tell)


def test_an_operator_that_ends_lets_nobody_begin_before_its_last_write_has_arrived():
    """The lease was given up first: a write that was under way then arrived beside those of the next operator."""

    async def tell(world):
        first = world.start("one")
        world.kube.put("orders", SMALLEST)
        await until(world.is_ready, 60)
        world.server.seconds, world.server.lease_s = 4.0, 0.1
        world.kube.put("orders", changed(SMALLEST, segments={"maxEntries": 7}, version="2.0.0"))
        began = len(world.server.log)
        await until(lambda: "patch" in [verb for _, verb, _, _ in world.server.log[began:]], 60)
        _, running = world.operators.pop("one")
        world.start("two")
        first.stop()
        await running
        assert world.server.holder() in ("", "two")
        world.server.seconds = 0.0
        await until(lambda: world.server.holder() == "two" and world.is_ready(), 120)

    story(tell)


def test_copies_that_are_made_are_told_within_seconds():
    """Nobody but the brokers knows of them: the cluster was looked at 20 s later, as one that is as it shall be."""

    def replicated(world):
        return next(one["status"] for one in world.status()["conditions"] if one["type"] == "Replicated")

    async def tell(world):
        world.kube.put("orders", SMALLEST)
        world.start()
        await until(world.is_ready, 60)
        world.figures = lambda broker: replace(broker, under_replicated=3)
        await until(lambda: replicated(world) == "False", 60)
        world.figures = lambda broker: broker
        await until(lambda: replicated(world) == "True", 4)

    story(tell)
