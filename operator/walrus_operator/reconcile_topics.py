"""One pass over the topics of one cluster: observe, plan, act, look again at what changed, tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from walrus_operator.act.topics import TopicExecutor
from walrus_operator.api.cluster import API_VERSION
from walrus_operator.clock import Monotonic, Now, monotonic
from walrus_operator.kube.api import Conflict, KubeApi, Missing
from walrus_operator.objects import TOPIC, Key, TopicsKey
from walrus_operator.observe.brokers import Brokers
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.topic_observer import TopicObserver
from walrus_operator.observe.topics import Topic, TopicsSnapshot
from walrus_operator.plan.patience import Patience
from walrus_operator.plan.topics import HoldTopic, TopicDone, TopicGate, TopicPlan, TopicWait, plan_topics
from walrus_operator.reconcile import Recorder
from walrus_operator.status.topics import FIGURES_S, derive_topic, lasting, topic_events
from walrus_operator.status.writing import Writing
from walrus_operator.together import together

IDLE_S = 60.0
"""How soon topics that are as they shall be are looked at again: by one list, and one question for all of them."""
_TOGETHER = 4
"""Statuses that are written at the same time; clusters are looked after meanwhile."""
_MOVING = frozenset({TopicGate.BROKERS_UNAVAILABLE, TopicGate.CHANGED_MEANWHILE, TopicGate.NOT_WRITTEN})
"""Gates that may open at any moment."""

Told = Callable[[TopicsKey, int, int], None]
"""Told of the topics of a cluster: how many there are, and how many of them are ready."""


@dataclass(frozen=True)
class TopicsPass:
    """What one pass came to."""

    again_s: float
    waits: frozenset[TopicGate]
    acts: tuple[str, ...]
    statuses: int
    """How many were written."""


class TopicReconciler:
    """Brings topics to what they shall be."""

    def __init__(
        self,
        kube: KubeApi,
        brokers: Brokers,
        recorder: Recorder,
        now: Now,
        monotonic: Monotonic = monotonic,
        told: Told = lambda *_: None,
    ) -> None:
        self._kube = kube
        self._observer = TopicObserver(kube, brokers, Observer(kube, brokers, now))
        self._executor = TopicExecutor(kube, brokers, monotonic)
        self._recorder = recorder
        self._now = now
        self._monotonic = monotonic
        self._told = told
        # Only how often something is tried or told is remembered: what is to be done never depends on it.
        self._patience = Patience()
        self._writing = Writing(lasting, FIGURES_S)
        self._waiting: set[TopicsKey] = set()
        self._known: dict[TopicsKey, frozenset[str]] = {}

    def awaits(self, cluster: Key) -> bool:
        """Whether topics wait for something that a change of their cluster may bring."""
        return TopicsKey(cluster.namespace, cluster.name) in self._waiting

    async def reconcile(self, key: TopicsKey) -> TopicsPass | None:
        """One pass; None where no topic names this cluster. Raises `KubeError`."""
        look = await self._observer.look(key)
        self._forget(key, look)
        if not look.topics:
            self._patience.forget(key)
            self._told(key, 0, 0)
            return None
        plans = plan_topics(look)
        done = await self._executor.act(plans, look)
        changed = [plan.topic for plan in plans if _has_changed(done.get(plan.topic.uid))]
        after = await self._observer.compare(look, changed) if changed else look
        told = [_seen_again(plan, after) for plan in plans]
        return self._ended(key, told, done, await self._tell(told, done))

    async def _tell(self, plans: list[TopicPlan], done: Mapping[str, TopicDone]) -> dict[str, float]:
        """Write the statuses that are due. In how many seconds the others are, and 0.0 for each that was written."""
        due: dict[str, float] = {}

        async def tell(plan: TopicPlan) -> None:
            topic, acted = plan.topic, done.get(plan.topic.uid)
            status = derive_topic(plan, acted, self._now())
            if status is None:
                return
            seconds = self._writing.due_s(topic.uid, topic.status, status, self._monotonic())
            if seconds is not None:
                due[topic.uid] = seconds
            if seconds == 0.0:
                await self._write(topic, status)
            happened = topic_events(topic, status, acted)
            if happened:
                await self._recorder.record(topic, happened)

        # One whose turn did not come is told of in the next pass.
        had_a_turn = [plan for plan in plans if not plan.actions or plan.topic.uid in done]
        await together(tell, had_a_turn, _TOGETHER)
        return due

    async def _write(self, topic: Topic, status: dict[str, Any]) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": TOPIC.name,
            # With the uid, a status never lands on another resource of the same name.
            "metadata": {"name": topic.name, "namespace": topic.namespace, "uid": topic.uid},
            "status": status,
        }
        try:
            stored = await self._kube.apply_status(manifest)
        except (Missing, Conflict):
            return
        self._writing.wrote(topic.uid, status, stored.get("status", {}), self._monotonic())

    def _ended(
        self, key: TopicsKey, plans: list[TopicPlan], done: Mapping[str, TopicDone], due: Mapping[str, float]
    ) -> TopicsPass:
        waits = {wait.gate for plan in plans for wait in plan.waits}
        waits |= {one.wait.gate for one in done.values() if one.wait is not None}
        postponed = any(plan.actions and plan.topic.uid not in done for plan in plans)
        stopped = {uid for uid, one in done.items() if one.wait is not None}
        ready = sum(not plan.waits and plan.topic.uid not in stopped for plan in plans)
        self._told(key, len(plans), ready)
        (self._waiting.add if waits else self._waiting.discard)(key)
        gates = frozenset(map(str, waits))
        again = self._patience.waiting(key, gates, moving=bool(waits & _MOVING), idle_s=IDLE_S)
        later = min((seconds for seconds in due.values() if seconds > 0), default=again)
        return TopicsPass(
            again_s=0.0 if postponed else min(again, later),
            waits=frozenset(waits),
            acts=tuple(type(action).__name__ for one in done.values() for action in one.actions),
            statuses=sum(seconds == 0.0 for seconds in due.values()),
        )

    def _forget(self, key: TopicsKey, look: TopicsSnapshot) -> None:
        """What is gone needs no memory."""
        there = frozenset(topic.uid for topic in look.topics)
        for uid in self._known.get(key, frozenset()) - there:
            self._writing.forget(uid)
        if there:
            self._known[key] = there
        else:
            self._known.pop(key, None)
            self._waiting.discard(key)


def _has_changed(done: TopicDone | None) -> bool:
    """Whether brokers tell something else than before."""
    return done is not None and any(not isinstance(action, HoldTopic) for action in done.actions)


def _seen_again(plan: TopicPlan, after: TopicsSnapshot) -> TopicPlan:
    """The plan with what brokers tell now, after it was carried out."""
    seen = after.seen.get(plan.topic.uid)
    if plan.seen is None or seen is plan.seen:
        return plan
    waits = plan.waits if seen is not None else (*plan.waits, TopicWait(TopicGate.BROKERS_UNAVAILABLE, after.trouble))
    return replace(plan, seen=seen, waits=waits)
