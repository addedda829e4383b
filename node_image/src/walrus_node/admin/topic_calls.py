"""The calls about topics of any organisation."""

from __future__ import annotations

import asyncio
from typing import Any

from walrus_client.v1 import admin_pb2

from walrus_node.admin import topics
from walrus_node.admin.calls import Calls, Context, remaining_s
from walrus_node.admin.refusals import refuse
from walrus_node.metadata import reports
from walrus_node.metadata.store import Applied


class TopicCalls(Calls):
    """Compare, make, change and delete topics. A change names the topic by its identity, never another of its name."""

    async def CompareTopics(self, request: admin_pb2.CompareTopicsRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        if len(request.topics) > topics.COMPARED_MAX:
            message = f"{len(request.topics)} topics are asked for at once: {topics.COMPARED_MAX} at most"
            await refuse(context, "InvalidRequest", message)
        outcome = await asyncio.wrap_future(store.barrier(timeout=remaining_s(context)))
        if not isinstance(outcome, Applied):
            message = "nobody knows in time which topics there are: no majority of the metadata answered"
            await refuse(context, "Unavailable", message, retryable=True)
        state = store.read()
        names = {node.node_id: node.name for node in reports.nodes(state.metadata)}
        limits = self._view.limits(state)
        compared = await asyncio.to_thread(topics.compare, state.metadata, limits, request.topics, names)
        return admin_pb2.CompareTopicsResponse(topics=compared)

    async def MakeTopic(self, request: admin_pb2.MakeTopicRequest, context: Context) -> Any:  # noqa: N802
        return topics.made(await self._request(context, topics.make(request)))

    async def SetTopicConfig(self, request: admin_pb2.SetTopicConfigRequest, context: Context) -> Any:  # noqa: N802
        await self._request(context, topics.set_config(request))
        return admin_pb2.SetTopicConfigResponse()

    async def SetTopicPartitions(  # noqa: N802
        self, request: admin_pb2.SetTopicPartitionsRequest, context: Context
    ) -> Any:
        await self._request(context, topics.set_partitions(request))
        return admin_pb2.SetTopicPartitionsResponse()

    async def RemoveTopic(self, request: admin_pb2.RemoveTopicRequest, context: Context) -> Any:  # noqa: N802
        await self._request(context, topics.remove(request))
        return admin_pb2.RemoveTopicResponse()
