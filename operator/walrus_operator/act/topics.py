"""Does what plans of topics say, several topics at a time; one that fails holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from walrus_operator.api.cluster import API_VERSION
from walrus_operator.clock import Monotonic
from walrus_operator.desired.names import TOPIC_FINALIZER
from walrus_operator.kube.api import Conflict, KubeApi, KubeError, Missing
from walrus_operator.objects import TOPIC, Manifest
from walrus_operator.observe.brokers import BrokerError, Brokers, TopicMoved, TopicRefused
from walrus_operator.observe.topics import Topic, TopicsSnapshot
from walrus_operator.plan.topics import (
    AddPartitions,
    HoldTopic,
    MakeTopic,
    RemoveTopic,
    SetTopicConfig,
    TopicAction,
    TopicDone,
    TopicGate,
    TopicPlan,
    TopicWait,
)
from walrus_operator.together import together

log = logging.getLogger(__name__)

_TOGETHER = 8
"""Topics that are worked on at the same time."""
PASS_S = 20.0
"""After so long nothing is begun any more in a pass: the rest is done in the next one, which sees what is new."""


class TopicExecutor:
    """Does what plans say, through doors that let only the holder of the lease write."""

    def __init__(self, kube: KubeApi, brokers: Brokers, monotonic: Monotonic) -> None:
        self._kube = kube
        self._brokers = brokers
        self._monotonic = monotonic

    async def act(self, plans: Sequence[TopicPlan], look: TopicsSnapshot) -> dict[str, TopicDone]:
        """Do what there is to do, in the order of the plans, for a while; by uid, of those that were begun."""
        until = self._monotonic() + PASS_S
        done: dict[str, TopicDone] = {}

        async def attend(plan: TopicPlan) -> None:
            if self._monotonic() < until:
                done[plan.topic.uid] = await self._attend(plan, look)

        await together(attend, [plan for plan in plans if plan.actions], _TOGETHER)
        return done

    async def _attend(self, plan: TopicPlan, look: TopicsSnapshot) -> TopicDone:
        done: list[TopicAction] = []
        for action in plan.actions:
            try:
                await self._do(action, plan.topic, look)
            except (Conflict, Missing, TopicMoved) as moved:
                return TopicDone(tuple(done), TopicWait(TopicGate.CHANGED_MEANWHILE, str(moved)))
            except TopicRefused as refused:
                return TopicDone(tuple(done), TopicWait(TopicGate.REFUSED, str(refused)))
            except BrokerError as error:
                return TopicDone(tuple(done), TopicWait(TopicGate.BROKERS_UNAVAILABLE, str(error)))
            except KubeError as error:
                return TopicDone(tuple(done), TopicWait(TopicGate.NOT_WRITTEN, str(error)))
            log.info("%s/%s: %s", plan.topic.namespace, plan.topic.name, action)
            done.append(action)
        return TopicDone(tuple(done))

    async def _do(self, action: TopicAction, topic: Topic, look: TopicsSnapshot) -> None:
        assert look.cluster is not None or isinstance(action, HoldTopic)
        secrets = look.cluster.credentials() if look.cluster is not None else None
        match action:
            case HoldTopic():
                await self._kube.apply(_marked(topic, held=action.held))
            case MakeTopic():
                await self._tell(look, lambda host: self._brokers.make_topic(host, action.wanted, secrets))
            case SetTopicConfig():
                await self._tell(
                    look,
                    lambda host: self._brokers.set_topic_config(
                        host, action.topic, action.entries, action.unset, action.expect_version, secrets
                    ),
                )
            case AddPartitions():
                await self._tell(
                    look,
                    lambda host: self._brokers.set_topic_partitions(host, action.topic, action.partitions, secrets),
                )
            case RemoveTopic():
                await self._tell(look, lambda host: self._brokers.remove_topic(host, action.topic, secrets))

    async def _tell(self, look: TopicsSnapshot, tell: Callable[[str], Awaitable[None]]) -> None:
        """Asked of one broker after the other until one answers: each change may be asked for again."""
        trouble = BrokerError("no broker can be asked")
        for host in look.hosts():
            try:
                return await tell(host)
            except BrokerError as error:
                trouble = error
        raise trouble


def _marked(topic: Topic, *, held: bool) -> Manifest:
    """The topic with our finalizer or without; nothing else of it is said, so nothing else changes."""
    metadata: Manifest = {"name": topic.name, "namespace": topic.namespace, "uid": topic.uid}
    if held:
        metadata["finalizers"] = [TOPIC_FINALIZER]
    return {"apiVersion": API_VERSION, "kind": TOPIC.name, "metadata": metadata}
