"""Looks at the topics of a cluster: by one list, and one question to its brokers for each page of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from walrus_operator.desired.topics import Wanted
from walrus_operator.kube.api import KubeApi, Missing
from walrus_operator.objects import TOPIC, Key, TopicsKey
from walrus_operator.observe.brokers import BrokerError, Brokers
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.topics import Compared, Topic, TopicsSnapshot

_PAGE = 500
"""Topics that brokers are asked about at once."""


class TopicObserver:
    """Looks at the topics of clusters."""

    def __init__(self, kube: KubeApi, brokers: Brokers, observer: Observer) -> None:
        self._kube = kube
        self._brokers = brokers
        self._observer = observer

    async def look(self, key: TopicsKey) -> TopicsSnapshot:
        """The topics as they are now. Raises `KubeError`."""
        try:
            found = await self._kube.list(TOPIC, key.namespace)
        except Missing:  # the definition is gone, and the topics with it
            found = []
        named = [one for one in found if one.get("spec", {}).get("cluster") == key.name]
        topics = tuple(sorted(map(Topic.parse, named), key=lambda topic: (topic.created, topic.uid)))
        if not topics:
            return TopicsSnapshot(key, (), None)
        seen = TopicsSnapshot(key, topics, await self._observer.look(Key(key.namespace, key.name)))
        return await self.compare(seen, topics)

    async def compare(self, look: TopicsSnapshot, topics: Iterable[Topic]) -> TopicsSnapshot:
        """The same look with what brokers tell of these topics now. The first broker that answers is asked all."""
        asked = [(topic.uid, topic.wanted) for topic in topics if topic.wanted is not None]
        known = {uid: one for uid, one in look.seen.items() if uid not in dict(asked)}
        trouble = "no broker of it answers"
        for host in look.hosts():
            try:
                told = await self._pages(host, [one for _, one in asked])
            except BrokerError as error:
                trouble = str(error)
                continue
            return replace(look, seen=known | {uid: one for (uid, _), one in zip(asked, told, strict=True)}, trouble="")
        return replace(look, seen=known, trouble=trouble)

    async def _pages(self, host: str, topics: Sequence[Wanted]) -> list[Compared]:
        told: list[Compared] = []
        for at in range(0, len(topics), _PAGE):
            told += await self._brokers.compare_topics(host, topics[at : at + _PAGE])
        return told
