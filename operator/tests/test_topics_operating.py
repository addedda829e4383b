"""Topics under the whole operator, in a time that is counted: how soon, at what cost, and in which surroundings."""

import asyncio

import pytest
from examples import SMALLEST, with_pool
from operating import World
from test_topics import BILLING, DELETE, started
from virtual import run, until
from walrus_operator.kube.api import Conflict, Denied, Missing, Refused, Unreachable
from walrus_operator.objects import Ref

MANY = 1000


def story(tell):
    """`await tell(world)` in a world that moves, with a cluster that serves and one operator."""

    kube = started()

    async def told():
        async with World(kube).moving() as world:
            world.start()
            await until(lambda: world.is_ready() and world.operators["one"][0].lease.held, 60)
            await asyncio.sleep(30)
            await tell(world)

    run(told())


def is_ready(world, name="billing"):
    return world.topic(name).get("phase") == "Ready"


def gone(world, name="billing"):
    return Ref("WalrusTopic", "shop", name) not in world.kube.objects


def test_a_topic_is_ready_within_two_seconds_of_its_apply_a_changed_one_too():
    async def tell(world):
        world.kube.put_topic("billing", BILLING)
        await until(lambda: is_ready(world), 2)
        world.kube.put_topic("billing", {**BILLING, "partitions": 5})
        await until(lambda: world.topic()["partitions"] == 5, 2)
        world.kube.put_topic("billing", {**DELETE, "partitions": 5})
        await until(lambda: world.kube.objects[Ref("WalrusTopic", "shop", "billing")]["metadata"].get("finalizers"), 2)
        world.kube.remove("WalrusTopic", "billing")
        await until(lambda: gone(world) and world.kube.topics.found("billing") is None, 2)

    story(tell)


def test_a_thousand_topics_are_ready_within_a_minute_and_at_rest_cost_no_call_of_their_own():
    async def tell(world):
        world.server.seconds = 0.02
        world.is_still = True
        for number in range(MANY):
            world.kube.put_topic(f"topic-{number}", {"cluster": "orders"})
        await until(lambda: all(is_ready(world, f"topic-{number}") for number in range(MANY)), 60)
        await asyncio.sleep(120)
        began, compared = asyncio.get_running_loop().time(), world.kube.calls["compare", "topics"]
        await asyncio.sleep(300)
        assert world.server.count(("patch", "create", "delete", "update"), began) == 0
        assert world.server.count(("get", "list"), began, "WalrusTopic") <= 2 * 6
        assert world.kube.calls["compare", "topics"] - compared <= 2 * 6
        assert (
            world.operators["one"][0].metrics.registry.get_sample_value(
                "walrus_operator_topics", {"namespace": "shop", "cluster": "orders", "ready": "true"}
            )
            == MANY
        )
        world.kube.put_topic("late", {"cluster": "orders"})
        await until(lambda: is_ready(world, "late"), 2)

    story(tell)


def test_drift_is_found_and_put_right_within_a_minute():
    async def tell(world):
        world.kube.put_topic("billing", BILLING)
        await until(lambda: is_ready(world), 2)
        world.kube.topics.change("billing", **{"segment.ms": "7"})
        await until(lambda: "segment.ms" not in world.kube.topics.found("billing")["config"], 61)

    story(tell)


@pytest.mark.parametrize("error", [Conflict, Denied, Refused, Unreachable, Missing])
@pytest.mark.parametrize("kind", ["WalrusTopic", "WalrusTopic/status"])
def test_writes_of_topics_that_fail_for_a_while_hold_up_neither_other_topics_for_ever_nor_the_cluster(error, kind):
    async def tell(world):
        heal = world.server.fail(error, ("patch",), kinds=(kind,))
        world.kube.put_topic("billing", DELETE)
        world.kube.put("orders", with_pool(SMALLEST, replicas=4))
        await until(lambda: world.status().get("readyReplicas") == 4, 60)
        await asyncio.sleep(60)
        if kind == "WalrusTopic":
            assert world.kube.topics.found("billing") is None, "what could not be deleted again is not made"
        heal()
        await until(lambda: is_ready(world), 90)
        assert world.operators["one"][0].health.troubles() == []

    story(tell)


@pytest.mark.parametrize("error", [Unreachable, Denied])
def test_lists_of_topics_that_fail_for_ten_minutes_stop_nothing_else(error):
    """Too many requests and errors of the server, and a role of the release before."""

    async def tell(world):
        heal = world.server.fail(error, ("list",), kinds=("WalrusTopic",))
        world.kube.put_topic("billing", BILLING)
        if error is Denied:
            world.kube.put("orders", with_pool(SMALLEST, replicas=4))
            await until(lambda: world.status().get("readyReplicas") == 4, 60)
        await asyncio.sleep(600)
        heal()
        await until(lambda: is_ready(world), 90)

    story(tell)


def test_a_definition_that_is_deleted_and_comes_back():
    async def tell(world):
        world.kube.put_topic("billing", BILLING)
        await until(lambda: is_ready(world), 2)
        heal = world.server.fail(Missing, kinds=("WalrusTopic", "WalrusTopic/status"))
        del world.kube.objects[Ref("WalrusTopic", "shop", "billing")]
        await asyncio.sleep(300)
        assert world.kube.topics.found("billing") is not None
        assert world.operators["one"][0].health.troubles() == []
        heal()
        world.kube.put_topic("billing", {**BILLING, "partitions": 4})
        await until(lambda: is_ready(world), 90)
        assert world.kube.topics.found("billing")["partitions"] == 4

    story(tell)


def test_a_namespace_that_ends_does_not_wait_for_its_topics():
    """Nothing may be made there any more; the cluster goes with everything else."""

    async def tell(world):
        world.kube.put_topic("billing", DELETE)
        await until(lambda: is_ready(world), 2)
        world.server.fail(Denied, ("create",), namespace="shop")
        for ref in [ref for ref in world.kube.objects if ref.kind in ("WalrusTopic", "WalrusCluster", "StatefulSet")]:
            world.kube.remove(ref.kind, ref.name)
        await until(lambda: gone(world), 60)

    story(tell)


def test_a_topic_that_waits_for_its_cluster_is_made_soon_after_that_serves():
    async def told():
        async with World().moving() as world:
            world.start()
            world.kube.put_topic("billing", BILLING)
            await until(lambda: world.topic().get("phase") == "NoCluster", 30)
            await asyncio.sleep(300)
            world.kube.put("orders", SMALLEST)
            await until(world.is_ready, 90)
            await until(lambda: is_ready(world), 5)

    run(told())


def test_at_three_seconds_a_call_topics_come_up_and_the_operator_is_well():
    async def tell(world):
        world.server.seconds = 3.0
        for number in range(60):
            world.kube.put_topic(f"topic-{number}", DELETE)
        operator = world.operators["one"][0]
        while not all(is_ready(world, f"topic-{number}") for number in range(60)):
            await asyncio.sleep(5)
            assert operator.lease.held
            assert operator.health.troubles() == []
            assert asyncio.get_running_loop().time() < 1600

    story(tell)


def test_an_operator_that_dies_in_the_middle_leaves_the_rest_to_the_next_one():
    async def tell(world):
        world.server.seconds = 0.3
        for number in range(40):
            world.kube.put_topic(f"topic-{number}", DELETE)
        await until(lambda: len(world.kube.topics.topics) > 5, 60)
        world.start("other")
        await world.kill("one")
        await until(lambda: all(is_ready(world, f"topic-{number}") for number in range(40)), 200)
        assert len(world.kube.topics.topics) == 40

    story(tell)


def test_what_a_write_did_whose_answer_was_lost_is_not_done_twice():
    async def tell(world):
        world.server.unheard = 3
        world.kube.put_topic("billing", DELETE)
        await until(lambda: is_ready(world), 60)
        assert world.kube.calls["make", "topic"] == 1

    story(tell)
