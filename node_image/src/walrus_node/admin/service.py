"""`walrus.v1.Admin`: requests in, metadata commands and views out. Any node takes any request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio
from walrus_client.v1 import admin_pb2, admin_pb2_grpc

from walrus_node.admin.refusals import refuse, refuse_as
from walrus_node.admin.views import cluster_nodes, metadata_status
from walrus_node.commands import execute, now_ms
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import Applied, MetadataStore, Rejected

Context = grpc.aio.ServicerContext[Any, Any]
Store = MetadataStore[ClusterState]

# For a caller that names no deadline.
_COMMAND_SECONDS_MAX = 30.0
# Before the caller's deadline, so that it hears why.
_ANSWER_SECONDS = 0.2


@dataclass(frozen=True)
class Facts:
    """What the service shows of this node. All are quick and are asked anew for each request."""

    identity: Callable[[], admin_pb2.IdentityResponse]
    missing: Callable[[], list[str]]
    storage: Callable[[], admin_pb2.StorageStatus]
    # `None` as long as the node is in no cluster.
    store: Callable[[], Store | None]
    set_log_level: Callable[[str], None]


class AdminService(admin_pb2_grpc.AdminServicer):
    """Runs in the event loop."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def Identity(self, _request: admin_pb2.IdentityRequest, _context: Context) -> Any:  # noqa: N802
        return self._facts.identity()

    async def Status(self, _request: admin_pb2.StatusRequest, _context: Context) -> Any:  # noqa: N802
        facts, identity = self._facts, self._facts.identity()
        missing = facts.missing()
        answer = admin_pb2.StatusResponse(
            ready=not missing, missing=missing, identity=identity, storage=facts.storage()
        )
        store = facts.store()
        if store is None:
            return answer
        status, state = store.status(), store.read()
        answer.metadata.CopyFrom(metadata_status(status, state))
        answer.nodes.extend(cluster_nodes(state.metadata.nodes(), status.voters(), now_ms()))
        alive = [node.node_id for node in answer.nodes if node.alive]
        census = await asyncio.to_thread(state.metadata.census, alive)
        load = census["nodes"].get(str(identity.node_id), {"led": 0, "held": 0})
        answer.segments_led, answer.segments_held = load["led"], load["held"]
        answer.under_replicated = census["under_replicated"]
        answer.config_version = state.config.version
        return answer

    async def GetConfig(self, _request: admin_pb2.GetConfigRequest, context: Context) -> Any:  # noqa: N802
        config = (await self._store(context)).read().config
        return admin_pb2.GetConfigResponse(version=config.version, entries=config.entries)

    async def SetConfig(self, request: admin_pb2.SetConfigRequest, context: Context) -> Any:  # noqa: N802
        command = {"set_config": {"set": dict(request.entries), "unset": list(request.unset)}}
        expect = request.expect_version if request.HasField("expect_version") else None
        applied = await self._execute(context, command, expect=expect)
        return admin_pb2.SetConfigResponse(version=applied.answer["config"]["version"])

    async def ListMembers(self, _request: admin_pb2.ListMembersRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        nodes = cluster_nodes(store.read().metadata.nodes(), store.status().voters(), now_ms())
        return admin_pb2.ListMembersResponse(nodes=nodes)

    async def SetLogLevel(self, request: admin_pb2.SetLogLevelRequest, context: Context) -> Any:  # noqa: N802
        try:
            self._facts.set_log_level(request.level)
        except ValueError as wrong:
            await refuse(context, "InvalidRequest", str(wrong))
        return admin_pb2.SetLogLevelResponse()

    async def _store(self, context: Context) -> Store:
        store = self._facts.store()
        if store is None:
            missing = "; ".join(self._facts.missing())
            await refuse(context, "NotAdmitted", f"this node is in no cluster yet: {missing}", retryable=True)
        return store

    async def _execute(self, context: Context, command: Mapping[str, Any], *, expect: int | None = None) -> Applied:
        """Propose until the outcome is known, within the caller's time."""
        store = await self._store(context)
        remaining = context.time_remaining()
        seconds = _COMMAND_SECONDS_MAX if remaining is None else min(remaining - _ANSWER_SECONDS, _COMMAND_SECONDS_MAX)
        try:
            async with asyncio.timeout(seconds):
                outcome = await execute(store, dict(command), expect=expect)
        except TimeoutError:
            message = "nobody knows in time whether it was done: the metadata has no majority or no leader"
            await refuse(context, "OutcomeUnknown", message, retryable=True)
        if isinstance(outcome, Rejected):
            await refuse_as(context, outcome)
        return outcome
