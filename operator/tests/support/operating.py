"""The whole operator, from its lease to its lists, over a simulated Kubernetes and in a time that is counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from simapi import is_ready
from simkube import SimKube
from simserver import SimAdmin, SimClient, SimServer
from walrus_operator.main import Doors, Operator
from walrus_operator.objects import CLUSTER, POD, STATEFUL_SET, TOPIC, Key, Ref, TopicsKey, uid_of
from walrus_operator.observe.wishes import Wishes
from walrus_operator.settings import Settings


class World:
    """A Kubernetes that moves by itself, a step each second, and operators that look after it."""

    def __init__(self, kube=None):
        self.kube = kube or SimKube()
        self.server = SimServer(self.kube)
        self.figures = lambda broker: broker
        self.is_still = False  # controllers and kubelets do nothing
        self.operators = {}

    @asynccontextmanager
    async def moving(self):
        """Controllers and brokers are at work, until the end of all operators."""
        moving = asyncio.ensure_future(self._move())
        try:
            yield self
        finally:
            moving.cancel()
            for name in list(self.operators):
                await self.kill(name)
            with suppress(asyncio.CancelledError):
                await moving

    async def _move(self):
        while True:
            await asyncio.sleep(1)
            if not self.is_still:
                # Each step takes two seconds for those who look at times of objects.
                self.kube.time = datetime.fromtimestamp(asyncio.get_running_loop().time() - 2, UTC)
                self.kube.step()

    def start(self, name="one", namespaces=("shop",), **settings):
        """An operator comes up."""
        loop = asyncio.get_running_loop()
        settings = Settings(
            namespaces=namespaces, pod_namespace="walrus-system", pod_name=name, health_port=0, **settings
        )
        doors = Doors(
            kubernetes=lambda _, fence, threads, read: SimClient(self.server, name, threads, fence, read),
            brokers=lambda fence: SimAdmin(self.server, fence, lambda broker: self.figures(broker)),
            listener=lambda look, heard, _: SimListener(self.server, look, heard),
            monotonic=loop.time,
            now=lambda: datetime.fromtimestamp(loop.time(), UTC),
        )
        operator = Operator(settings, doors)
        self.operators[name] = operator, asyncio.ensure_future(operator.run())
        return operator

    async def kill(self, name):
        """It dies: it neither ends what it does nor gives up its lease."""
        operator, running = self.operators.pop(name)
        operator.lease.release = _nothing
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    def replace(self, name):
        """It dies, and its Deployment starts another one at once."""
        operator, running = self.operators.pop(name)
        operator.lease.release = _nothing
        running.cancel()
        return self.start(f"{name}+")

    def status(self, name="orders", namespace="shop"):
        found = next(
            found
            for ref, found in self.kube.objects.items()
            if (ref.kind, ref.namespace, ref.name) == (CLUSTER.name, namespace, name)
        )
        return found.get("status", {})

    def topic(self, name="billing", namespace="shop"):
        """The status of a WalrusTopic."""
        return self.kube.objects[Ref(TOPIC.name, namespace, name)].get("status", {})

    def condition(self, type_, name="orders", namespace="shop"):
        told = self.status(name, namespace).get("conditions", ())
        return next((one for one in told if one["type"] == type_), {})

    def is_ready(self, name="orders", namespace="shop"):
        return self.condition("Ready", name, namespace).get("status") == "True"


async def _nothing():
    pass


class SimListener:
    """A watch of the namespaces that it was told to listen to, a second behind."""

    def __init__(self, server, look, heard):
        self.server = server
        self.look = look
        self.heard = heard
        self.open = set()
        self.wishes = Wishes()
        self.seen = {}

    def listen(self, namespace, answers):
        (self.open.add if answers else self.open.discard)(namespace)

    async def run(self):
        topics = {}
        while True:
            await asyncio.sleep(1)
            topics = self._hear_topics(topics)
            for ref, found in self.server.kube.objects.items():
                if ("*" not in self.open and ref.namespace not in self.open) or ref.namespace in self.server.unwatched:
                    continue
                if ref.kind == CLUSTER.name:
                    self.heard(uid_of(found), found["metadata"]["resourceVersion"])
                    if self.wishes.are_new(found["metadata"]):
                        self.look(Key(ref.namespace, ref.name))
                elif ref.kind == STATEFUL_SET.name:
                    self.heard(uid_of(found), found["metadata"]["resourceVersion"])
                    if self.seen.get(ref) != self._state(ref, found):
                        self.seen[ref] = self._state(ref, found)
                        self.look(Key(ref.namespace, found["metadata"]["labels"]["walrus.dev/cluster"]))

    def _hear_topics(self, before):
        """Tells of topics that are new or wished to be otherwise, and of those that are gone."""
        there = {
            uid_of(found): (ref.namespace, found["spec"]["cluster"], found["metadata"])
            for ref, found in self.server.kube.objects.items()
            if ref.kind == TOPIC.name
            and ("*" in self.open or ref.namespace in self.open)
            and ref.namespace not in self.server.unwatched
        }
        for uid, (namespace, cluster, metadata) in there.items():
            self.heard(uid, metadata["resourceVersion"])
            if self.wishes.are_new(metadata):
                self.look(TopicsKey(namespace, cluster))
        for uid in before.keys() - there.keys():
            self.heard(uid, None)
            self.look(TopicsKey(*before[uid][:2]))
        return there

    def _state(self, ref, found):
        """What its controller tells in the status: how many pods are ready."""
        owned = [
            pod
            for other, pod in self.server.kube.objects.items()
            if other.kind == POD.name and other.namespace == ref.namespace and other.name.startswith(f"{ref.name}-")
        ]
        return found["metadata"]["resourceVersion"], sum(map(is_ready, owned))
