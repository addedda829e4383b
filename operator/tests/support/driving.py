"""Drives the real reconcile loop over a `SimKube`, one pass after the other; time is counted, not waited for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from simkube import SimKube
from walrus_operator.objects import Key, Ref, TopicsKey
from walrus_operator.observe.observer import Observer
from walrus_operator.reconcile import Reconciler
from walrus_operator.reconcile_topics import TopicReconciler
from walrus_operator.runtime.events import EventRecorder

KEY = Key("shop", "orders")
TOPICS = TopicsKey("shop", "orders")
PASSES_MAX = 200


class _Loop:
    """One event loop for all passes, as a new one for each costs more than the pass; what dies takes it along.

    A pass is not run by `Runner.run`: that hangs a handler on each signal, for which Python writes out whole results.
    """

    def __init__(self):
        self._runner = asyncio.Runner()

    def run(self, pass_):
        try:
            return self._runner.get_loop().run_until_complete(pass_)
        except BaseException:
            # Nothing that was begun beside it goes on.
            self._runner.close()
            self._runner = asyncio.Runner()
            raise


_LOOP = _Loop()


class Operator:
    """An operator without memory: each is as good as the one before."""

    def __init__(self, kube: SimKube):
        self.kube = kube
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        recorder = EventRecorder(kube, instance="test", monotonic=lambda: 0.0, now=self._tick)
        self.reconciler = Reconciler(
            *(kube, kube.brokers, recorder, self._tick, "walrus/walrus-node", "walrus-system"), releases=kube.table
        )
        self.topics = TopicReconciler(kube, kube.brokers, recorder, self._tick, lambda: 0.0)

    def _tick(self):
        self.now = max(self.now + timedelta(seconds=1), self.kube.time)
        return self.now

    def once(self, key=KEY, *, asked=True):
        """One pass."""
        return _LOOP.run(self.reconciler.reconcile(key, asked=asked))

    def topics_once(self, key=TOPICS):
        """One pass over the topics."""
        return _LOOP.run(self.topics.reconcile(key))

    def look(self, key=KEY):
        """What a pass would begin with."""
        return _LOOP.run(Observer(self.kube, self.kube.brokers, self._tick).look(key))


def converge(kube, key=KEY, each=lambda: None):
    """Passes and steps, until neither changes anything. Returns the number of passes."""
    operator = Operator(kube)
    for passes in range(1, PASSES_MAX):
        writes = kube.writes
        operator.once(key)
        each()
        moved = kube.step()
        each()
        if kube.writes == writes and not moved:
            return passes
    raise AssertionError(f"no end after {PASSES_MAX} passes: {status(kube, key)}")


def settle_topics(kube, key=TOPICS):
    """Passes over the topics by operators without memory, until one changes nothing. Returns the number of passes."""
    for passes in range(1, PASSES_MAX):
        writes = kube.writes
        Operator(kube).topics_once(key)
        if kube.writes == writes:
            return passes
    raise AssertionError(f"no end after {PASSES_MAX} passes")


def topic_status(kube, name="billing"):
    return kube.objects[Ref("WalrusTopic", "shop", name)].get("status", {})


def topic_condition(kube, type_, name="billing"):
    return next(one for one in topic_status(kube, name)["conditions"] if one["type"] == type_)


def status(kube, key=KEY):
    found = next(found for ref, found in kube.objects.items() if ref.kind == "WalrusCluster" and ref.name == key.name)
    return found.get("status", {})


def condition(kube, type_, key=KEY):
    return next(one for one in status(kube, key)["conditions"] if one["type"] == type_)
