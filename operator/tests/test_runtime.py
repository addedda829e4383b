"""Queue, lease, health, Events and settings."""

import asyncio
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError
from simkube import SimKube
from walrus_operator.kube.api import Denied, Unreachable
from walrus_operator.objects import Key, Ref, ref_of
from walrus_operator.observe.snapshot import Cluster
from walrus_operator.runtime.events import EventRecorder
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.lease import Lease, LeaseLost
from walrus_operator.runtime.queue import WorkQueue
from walrus_operator.settings import Settings
from walrus_operator.status.events import Event, Reason

A, B = Key("shop", "a"), Key("shop", "b")
LEASE = Ref("Lease", "walrus-system", "walrus-operator")


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds

    def now(self):
        return datetime.fromtimestamp(self.seconds, UTC)


def lease(kube, clock, holder):
    return Lease(kube, namespace=LEASE.namespace, name=LEASE.name, holder=holder, monotonic=clock, now=clock.now)


# Queue


def test_a_key_is_queued_once_and_worked_on_by_one():
    async def story():
        queue = WorkQueue()
        for key in (A, B, A, A):
            queue.add(key)
        assert await queue.take() == A
        queue.add(A)
        queue.add(A)
        assert await queue.take() == B
        assert len(queue) == 1
        queue.finish(B, None)
        queue.finish(A, None)
        assert await queue.take() == A
        queue.finish(A, None)
        assert len(queue) == 0

    asyncio.run(story())


def test_a_key_that_fails_comes_back_later_each_time_and_at_once_after_it_went_well():
    async def story():
        queue = WorkQueue(jitter=lambda: 0.5)
        waits = []
        for _ in range(12):
            queue.add(A)
            await queue.take()
            waits.append(queue.fail(A))
        assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
        assert waits[-1] == 60.0
        queue.add(A)
        await queue.take()
        queue.finish(A, None)
        queue.add(A)
        await queue.take()
        assert queue.fail(A) == 0.2
        queue.close()

    asyncio.run(story())


def test_a_key_comes_back_by_itself():
    async def story():
        queue = WorkQueue()
        queue.add(A)
        await queue.take()
        queue.finish(A, 0.001)
        async with asyncio.timeout(30):
            assert await queue.take() == A

    asyncio.run(story())


def test_whether_someone_asked_for_a_look_is_known():
    async def story():
        queue = WorkQueue()

        async def taken():
            async with asyncio.timeout(30):
                return queue.is_asked(await queue.take())

        queue.add(A)
        assert await taken()
        queue.finish(A, 0.001)
        assert not await taken()
        queue.add(A)  # while a worker is at it
        queue.finish(A, 60.0)
        assert await taken()
        queue.finish(A, 0.001)
        assert not await taken()
        queue.fail(A)
        assert not await taken()
        queue.finish(A, 60.0)
        queue.add(A)
        assert await taken()

    asyncio.run(story())


# Lease


def test_of_two_operators_one_holds_the_lease():
    async def story():
        kube, clock = SimKube(), Clock()
        one, other = lease(kube, clock, "one"), lease(kube, clock, "other")
        assert await one.attempt()
        assert not await other.attempt()
        assert one.held
        assert not other.held
        for _ in range(10):
            clock.seconds += 5
            assert await one.attempt()
            assert not await other.attempt()

    asyncio.run(story())


def test_the_lease_of_an_operator_that_died_is_taken_when_it_has_run_out():
    async def story():
        kube, clock = SimKube(), Clock()
        one, other = lease(kube, clock, "one"), lease(kube, clock, "other")
        assert await one.attempt()
        assert not await other.attempt()
        clock.seconds += 14
        assert not one.held  # it stops writing before another one may begin
        clock.seconds += 5
        assert not await other.attempt()
        clock.seconds += 1
        assert await other.attempt()
        assert not await one.attempt()

    asyncio.run(story())


def test_a_lease_that_is_given_up_is_taken_at_once():
    async def story():
        kube, clock = SimKube(), Clock()
        one, other = lease(kube, clock, "one"), lease(kube, clock, "other")
        assert await one.attempt()
        await one.release()
        assert not one.held
        assert await other.attempt()
        await one.release()  # it is not ours any more
        assert kube.objects[LEASE]["spec"]["holderIdentity"] == "other"
        assert kube.objects[LEASE]["spec"]["leaseTransitions"] == 1

    asyncio.run(story())


def test_an_operator_that_cannot_renew_stops_writing():
    class Deaf(SimKube):
        async def get(self, ref):
            raise Unreachable(f"get {ref}: no answer")

        async def replace(self, manifest):
            raise Unreachable(f"update {ref_of(manifest)}: no answer")

    async def story():
        kube, clock = SimKube(), Clock()
        one = lease(kube, clock, "one")
        assert await one.attempt()
        one._kube = Deaf()
        while one.held:
            clock.seconds += 5
            assert not await one.attempt()
        with pytest.raises(LeaseLost):
            one.check()

    asyncio.run(story())


def test_a_renewal_holds_from_before_it_was_asked_for():
    """A slow answer must not make the lease longer than others believe it is."""
    clock = Clock()

    class Slow(SimKube):
        async def replace(self, manifest):
            clock.seconds += 9
            return await super().replace(manifest)

    async def story():
        one = lease(Slow(), clock, "one")
        await one.attempt()
        assert await one.attempt()
        clock.seconds += 5
        assert not one.held

    asyncio.run(story())


# Health


def test_an_operator_that_waits_for_the_lease_is_well_as_long_as_it_tries():
    clock = Clock()
    health = Health(clock)
    for _ in range(10):
        clock.seconds += 100
        health.tried_lease()
        assert health.troubles() == []
    clock.seconds += 200
    assert "lease" in health.troubles()[0]


def test_a_deaf_watch_is_found_by_what_a_list_shows_twice():
    health = Health(Clock())
    health.heard("a", "1")
    assert not health.resynced("shop", {"a": "1", "b": "2"})  # b may be new: the watch has until the next list
    assert health.resynced("shop", {"a": "1", "b": "2"})
    assert health.troubles() == []  # to listen anew may help
    assert health.resynced("shop", {"a": "1", "b": "2"})
    assert "deaf" in health.troubles()[0]
    health.heard("b", "2")
    assert not health.resynced("shop", {"a": "1", "b": "2"})
    assert health.troubles() == []


def test_news_that_come_while_a_list_is_taken_are_no_sign_of_deafness():
    health = Health(Clock())
    health.heard("a", "1")
    health.resynced("shop", {"a": "1"})
    health.heard("a", "2")
    health.heard("b", "3")
    health.resynced("shop", {"a": "1"})  # what it shows is older than what was heard
    assert health.troubles() == []
    health.resynced("shop", {"a": "2", "b": "3"})
    health.resynced("shop", {"a": "2", "b": "3"})
    assert health.troubles() == []
    health.heard("a", None)
    health.resynced("shop", {"b": "3"})
    assert health.troubles() == []


def test_a_busy_cluster_is_no_sign_of_deafness():
    health = Health(Clock())
    for version in range(10):
        health.resynced("shop", {"a": str(version)})
    assert health.troubles() == []


def test_a_quiet_night_is_no_sign_of_deafness():
    clock = Clock()
    health = Health(clock)
    health.heard("a", "1")
    for _ in range(100):
        clock.seconds += 60
        health.tried_lease()
        health.resynced("shop", {"a": "1"})
    assert health.troubles() == []


def test_a_pass_that_does_not_end_and_a_list_that_is_old_are_told():
    clock = Clock()
    health = Health(clock)
    health.resynced("shop", {})
    health.began(A)
    health.began(B)
    health.ended(B)
    clock.seconds += 200
    health.tried_lease()
    assert [trouble for trouble in health.troubles() if "shop/a" in trouble]
    assert [trouble for trouble in health.troubles() if "list" in trouble]


# Events


CLUSTER = Cluster(A, "uid-1", 1, {}, {}, None, deleting=False)


def test_an_event_is_not_posted_again_and_again():
    kube, clock = SimKube(), Clock()
    recorder = EventRecorder(kube, instance="one", monotonic=clock, now=clock.now)
    lost = Event(Reason.BROKER_LOST, "a-general-0 does not serve any more: Absent")
    for _ in range(5):
        asyncio.run(recorder.record(CLUSTER, [lost]))
        clock.seconds += 5
    assert kube.calls["create", "Event"] == 1
    clock.seconds += 30
    asyncio.run(recorder.record(CLUSTER, [lost, Event(Reason.FOUNDED, "cluster 1 is founded")]))
    posted = [found for ref, found in kube.objects.items() if ref.kind == "Event"]
    assert [(one["type"], one["reason"]) for one in posted] == [
        ("Warning", "BrokerLost"),
        ("Warning", "BrokerLost"),
        ("Normal", "Founded"),
    ]


def test_an_event_that_is_refused_is_no_error():
    class Closing(SimKube):
        async def create(self, manifest):
            raise Denied(f"create {manifest['kind']}: the namespace is being terminated")

    clock = Clock()
    recorder = EventRecorder(Closing(), instance="one", monotonic=clock, now=clock.now)
    asyncio.run(recorder.record(CLUSTER, [Event(Reason.CREATED, "Create Service a")]))


def test_an_event_that_could_not_be_posted_is_no_posted_one():
    """It counted as posted before it was: what happened again right after was never told."""

    class Closing(SimKube):
        open = False

        async def create(self, manifest):
            if not self.open:
                raise Unreachable(f"create {manifest['kind']}: no answer")
            return await super().create(manifest)

    kube, clock = Closing(), Clock()
    recorder = EventRecorder(kube, instance="one", monotonic=clock, now=clock.now)
    happened = [Event(Reason.CREATED, "Create Service a")]
    asyncio.run(recorder.record(CLUSTER, happened))
    kube.open = True
    asyncio.run(recorder.record(CLUSTER, happened))
    assert kube.calls["create", "Event"] == 1


# Settings


@pytest.mark.parametrize(
    ("value", "watched"),
    [("", ("home",)), ("*", (None,)), ("a, b,", ("a", "b"))],
)
def test_namespaces(monkeypatch, value, watched):
    monkeypatch.setenv("WALRUS_OPERATOR_NAMESPACES", value)
    monkeypatch.setenv("WALRUS_OPERATOR_POD_NAMESPACE", "home")
    assert Settings().watched == watched


def test_a_wrong_setting_is_refused(monkeypatch):
    monkeypatch.setenv("WALRUS_OPERATOR_HEALTH_PORT", "http")
    with pytest.raises(ValidationError, match="health_port"):
        Settings()
