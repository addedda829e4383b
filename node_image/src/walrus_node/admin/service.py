"""`walrus.v1.Admin`: requests in, metadata commands and views out. Any node takes any request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid4

import grpc.aio
from walrus_client.v1 import admin_pb2, admin_pb2_grpc

from walrus_node import logs
from walrus_node.admin import forced_recovery, lost_topics
from walrus_node.admin.calls import Context, Store, View, remaining_s
from walrus_node.admin.permit import authorization
from walrus_node.admin.refusals import refuse
from walrus_node.admin.topic_calls import TopicCalls
from walrus_node.admin.views import cluster_nodes, limits_of, metadata_status, organisation_view, segment_view
from walrus_node.commands import (
    drain_node,
    raise_level,
    remove_node,
    remove_organisation,
    set_config,
    set_organisation,
    set_replication,
    settings_version,
)
from walrus_node.metadata import reports
from walrus_node.metadata.machine import RegisteredNode
from walrus_node.metadata.quorum import keeps_majority, may_remove, spare_nodes, why_majority, why_not_recovered
from walrus_node.metadata.remains import lost_topics as find_lost_topics
from walrus_node.metadata.remains import recover_topic
from walrus_node.metadata.reports import Node, Replication
from walrus_node.metadata.store import Applied
from walrus_node.recovery import Order
from walrus_node.secret import Secrets

_LOOK_S = 0.02
# What leaders are given to say how far their segments are, and other nodes to say that they have caught up.
_LEADER_MS, _CURRENT_S = 2_000, 5.0
_SEGMENTS_DEFAULT, _SEGMENTS_MAX = 1_000, 10_000
_PASSED_ON = "walrus-passed-on"


@dataclass(frozen=True)
class Actions:
    """What the service can do to this node."""

    # An order is durable when this returns; the next start carries it out.
    recover: Callable[[Order], None]
    # The node starts again once the call under way is answered.
    start_again: Callable[[], None]


class AdminService(TopicCalls):
    """Runs in the event loop."""

    def __init__(self, view: View, actions: Actions, secrets: Secrets) -> None:
        super().__init__(view)
        self._actions = actions
        self._secrets = secrets

    async def Identity(self, _request: admin_pb2.IdentityRequest, _context: Context) -> Any:  # noqa: N802
        return self._view.identity()

    async def Status(self, _request: admin_pb2.StatusRequest, _context: Context) -> Any:  # noqa: N802
        view, identity = self._view, self._view.identity()
        missing = view.missing()
        answer = admin_pb2.StatusResponse(
            ready=not missing,
            missing=missing,
            identity=identity,
            storage=view.storage(),
            log_level=logs.level(),
            level_known=view.level(),
            wire_versions=view.wire_versions(),
        )
        store = view.store()
        if store is None:
            return answer
        status, state = store.status(), store.read()
        answer.metadata.CopyFrom(metadata_status(status, state))
        present = view.present(state)
        answer.nodes.extend(cluster_nodes(reports.nodes(state.metadata), status.voters(), present.alive))
        census = await asyncio.to_thread(reports.census, state.metadata, present.alive)
        load = census.load(identity.node_id)
        answer.segments_led, answer.segments_held, answer.bytes_held = load.led, load.held, load.bytes
        answer.copies_needed = census.copies_needed
        answer.under_replicated = census.under_replicated
        answer.replication.CopyFrom(admin_pb2.ReplicationStatus(**asdict(census.replication)))
        if status.is_leader:
            answer.spare_nodes = spare_nodes(status, census.spare_nodes)
        upkeep = await asyncio.to_thread(reports.upkeep, state.metadata, present)
        answer.copies.CopyFrom(admin_pb2.CopiesStatus(**asdict(upkeep.progress)))
        answer.config_version = state.config.version
        return answer

    async def GetConfig(self, _request: admin_pb2.GetConfigRequest, context: Context) -> Any:  # noqa: N802
        config = (await self._store(context)).read().config
        return admin_pb2.GetConfigResponse(version=config.version, entries=config.entries)

    async def SetConfig(self, request: admin_pb2.SetConfigRequest, context: Context) -> Any:  # noqa: N802
        expect = request.expect_version if request.HasField("expect_version") else None
        applied = await self._execute(context, set_config(request.entries, request.unset), expect=expect)
        return admin_pb2.SetConfigResponse(version=settings_version(applied))

    async def SetReplication(self, request: admin_pb2.SetReplicationRequest, context: Context) -> Any:  # noqa: N802
        wanted = Replication(request.replication.factor, request.replication.write_quorum)
        store = await self._store(context)
        if reports.census(store.read().metadata, []).replication != wanted:
            await self._execute(context, set_replication(wanted))
        return admin_pb2.SetReplicationResponse()

    async def ListOrganisations(  # noqa: N802
        self, _request: admin_pb2.ListOrganisationsRequest, context: Context
    ) -> Any:
        found = reports.organisations((await self._store(context)).read().metadata)
        return admin_pb2.ListOrganisationsResponse(organisations=map(organisation_view, found))

    async def SetOrganisation(self, request: admin_pb2.SetOrganisationRequest, context: Context) -> Any:  # noqa: N802
        expect = request.expect_version if request.HasField("expect_version") else None
        await self._execute(context, set_organisation(request.name, limits_of(request.limits)), expect=expect)
        return admin_pb2.SetOrganisationResponse()

    async def RemoveOrganisation(  # noqa: N802
        self, request: admin_pb2.RemoveOrganisationRequest, context: Context
    ) -> Any:
        await self._execute(context, remove_organisation(request.name))
        return admin_pb2.RemoveOrganisationResponse()

    async def ListMembers(self, _request: admin_pb2.ListMembersRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        nodes = cluster_nodes(reports.nodes(store.read().metadata), store.status().voters(), self._alive(store))
        return admin_pb2.ListMembersResponse(nodes=nodes)

    async def CanStop(self, request: admin_pb2.CanStopRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        # What this node has missed may be the very segments that would lack a replica: it slept, or was cut off.
        outcome = await asyncio.wrap_future(store.barrier(timeout=remaining_s(context)))
        if not isinstance(outcome, Applied):
            reasons = ["no majority of the metadata answered in time"]
            return admin_pb2.CanStopResponse(reasons=reasons, metadata_without_majority=True)
        node = await self._node(context, store, request.disk)
        alive, current = self._alive(store), await self._current(store)
        found = await asyncio.to_thread(
            reports.stop_impact, store.read().metadata, node.node_id, alive=alive, current=current
        )
        headless = not keeps_majority(store.status(), node.disk)
        reasons = []
        if headless:
            reasons.append("the metadata would have no majority of its voters")
        if found.open_without_quorum:
            reasons.append(f"{found.open_without_quorum} open segments would have too few replicas")
        if found.sealed_without_copy:
            reasons.append(f"{found.sealed_without_copy} sealed segments would have no copy that can be read")
        return admin_pb2.CanStopResponse(
            can_stop=not reasons,
            reasons=reasons,
            open_without_quorum=found.open_without_quorum,
            sealed_without_copy=found.sealed_without_copy,
            segments_led=found.led,
            metadata_without_majority=headless,
            topics=found.topics,
        )

    async def DescribeSegments(self, request: admin_pb2.DescribeSegmentsRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        limit = min(request.limit or _SEGMENTS_DEFAULT, _SEGMENTS_MAX)
        lines = await asyncio.to_thread(
            reports.segments,
            store.read().metadata,
            self._alive(store),
            topic=request.topic or None,
            under_replicated=request.under_replicated,
            limit=limit + 1,
        )
        return admin_pb2.DescribeSegmentsResponse(segments=map(segment_view, lines[:limit]), more=len(lines) > limit)

    async def CaughtUp(self, _request: admin_pb2.CaughtUpRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        missing, behind = self._view.missing(), None
        if not missing:
            outcome = await asyncio.wrap_future(store.barrier(timeout=remaining_s(context)))
            if not isinstance(outcome, Applied):
                missing = ["metadata: no majority answered in time"]
            else:
                behind = await asyncio.to_thread(self._view.open_behind, _LEADER_MS)
                missing = await self._missing_copies(store)
                if behind:
                    missing.append(
                        f"replicas: {behind} open segments lack records here, or their leaders do not answer"
                    )
        return admin_pb2.CaughtUpResponse(caught_up=not missing, missing=missing, open_whole=behind == 0)

    async def _missing_copies(self, store: Store) -> list[str]:
        census = await asyncio.to_thread(reports.census, store.read().metadata, self._alive(store))
        filling = census.load(self._view.identity().node_id).filling
        return [f"copies: {filling} sealed segments are not whole here yet"] if filling else []

    async def TransferLeadership(  # noqa: N802
        self, request: admin_pb2.TransferLeadershipRequest, context: Context
    ) -> Any:
        store = await self._store(context)
        to = (await self._node(context, store, request.to)).disk if request.to else None
        before = store.status()
        if before.leader is None:
            await refuse(context, "Unavailable", "no metadata leader is known now", retryable=True)
        if before.leader == to:
            return admin_pb2.TransferLeadershipResponse(leader=store.read().nodes[before.leader].node_id)
        if not before.is_leader:
            return await self._pass_on(context, store, before.leader, request)
        if not before.voters() - {before.leader} or (to is not None and to not in before.voters()):
            who = "this node does" if to is None else f"disk {to} does not"
            await refuse(context, "NoSuchVoter", f"nobody else can lead the metadata: {who} vote; see ListMembers")
        store.transfer(to)
        deadline = time.monotonic() + remaining_s(context)
        while time.monotonic() < deadline:
            leader = store.status().leader
            known = store.read().nodes.get(leader) if leader not in (None, before.leader) else None
            if known is not None and to not in (None, leader):
                await refuse(context, "Unavailable", f"node {known.node_id} was elected instead", retryable=True)
            if known is not None:
                return admin_pb2.TransferLeadershipResponse(leader=known.node_id)
            await asyncio.sleep(_LOOK_S)
        return await refuse(context, "Unavailable", "nobody who has caught up took over in time", retryable=True)

    async def FinalizeLevel(self, request: admin_pb2.FinalizeLevelRequest, context: Context) -> Any:  # noqa: N802
        known = (await self._store(context)).read().metadata
        level = request.level or known.reachable_level() or known.level
        await self._execute(context, raise_level(level))
        return admin_pb2.FinalizeLevelResponse(level=(await self._store(context)).read().metadata.level)

    async def StartDrain(self, request: admin_pb2.DrainRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        node = await self._node(context, store, request.disk)
        nodes, alive = reports.nodes(store.read().metadata), self._alive(store)
        takers = [n for n in nodes if n.state == "up" and n.node_id in alive and n.node_id != node.node_id]
        if not takers:
            message = "no other node is up to take its segments: add one, or let one come back"
            await refuse(context, "NobodyTakesOver", message)
        return await self._drain(context, node, draining=True)

    async def CancelDrain(self, request: admin_pb2.DrainRequest, context: Context) -> Any:  # noqa: N802
        node = await self._node(context, await self._store(context), request.disk)
        return await self._drain(context, node, draining=False)

    async def GetDrain(self, request: admin_pb2.DrainRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        return self._drain_status(store, await self._node(context, store, request.disk))

    async def _drain(self, context: Context, node: RegisteredNode, *, draining: bool) -> admin_pb2.DrainStatus:
        await self._execute(context, drain_node(node.node_id, node.disk, draining=draining))
        store = await self._store(context)
        return self._drain_status(store, store.read().nodes[node.disk])

    def _drain_status(self, store: Store, node: RegisteredNode) -> admin_pb2.DrainStatus:
        load = reports.census(store.read().metadata, self._alive(store)).load(node.node_id)
        return admin_pb2.DrainStatus(
            node_id=node.node_id,
            draining=node.draining,
            segments_led=load.led,
            segments_held=load.held,
            done=node.draining and not load.led and not load.held,
        )

    async def RemoveMember(self, request: admin_pb2.RemoveMemberRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        if request.disk in store.read().metadata.gone_disks():
            return admin_pb2.RemoveMemberResponse()
        node = await self._node(context, store, request.disk)
        if not may_remove(store.status(), node.disk):
            message = "the metadata would have no majority of its voters: bring voters back, or let others join, first"
            await refuse(context, "LosesMajority", message)
        command = remove_node(node.node_id, node.disk, lost=request.lost, replaced_by=request.replaced_by or None)
        await self._execute(context, command)
        return admin_pb2.RemoveMemberResponse()

    async def ListRemains(self, _request: admin_pb2.ListRemainsRequest, context: Context) -> Any:  # noqa: N802
        found = await asyncio.to_thread(self._view.remains)
        if found is None:
            await refuse(context, "Unavailable", "this node does not serve yet", retryable=True)
        return admin_pb2.ListRemainsResponse(remains=map(lost_topics.remains_message, found))

    async def ListLostTopics(self, _request: admin_pb2.ListLostTopicsRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        gathered = await self._gather_remains(store)
        lost = find_lost_topics(store.read().metadata, gathered.remains)
        return admin_pb2.ListLostTopicsResponse(topics=map(lost_topics.lost_message, lost), silent=gathered.silent)

    async def RecoverTopic(self, request: admin_pb2.RecoverTopicRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        gathered = await self._gather_remains(store)
        if gathered.silent:
            # A partition of which only they have something would begin anew, and offsets be given twice.
            silent = "; ".join(gathered.silent)
            message = f"the disks of all members must be looked at, and these do not answer: {silent}"
            await refuse(context, "Unavailable", message, retryable=True)
        state = store.read()
        found = {lost.topic: lost for lost in find_lost_topics(state.metadata, gathered.remains)}
        if request.topic not in found:
            message = f"no disk has a lost topic {request.topic!r}: see `walrus cluster recover-topics`"
            await refuse(context, "UnknownTopic", message)
        lost, present = found[request.topic], self._view.present(state)
        try:
            recovery = recover_topic(state.metadata, lost, request.name or None, present)
        except ValueError as problem:
            await refuse(context, "InvalidRequest", str(problem))
        await self._execute(context, recovery.command)
        return admin_pb2.RecoverTopicResponse(name=recovery.name)

    async def _gather_remains(self, store: Store) -> lost_topics.Gathered:
        return await lost_topics.gather(reports.nodes(store.read().metadata), self._ask_remains)

    async def _ask_remains(self, node: Node) -> admin_pb2.ListRemainsResponse:
        """Raises `OSError` where the node does not answer."""
        async with grpc.aio.insecure_channel(node.admin_address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call] # generated
            try:
                answer: admin_pb2.ListRemainsResponse = await stub.ListRemains(
                    admin_pb2.ListRemainsRequest(), timeout=_CURRENT_S
                )
            except grpc.aio.AioRpcError as error:
                raise OSError(error.details() or error.code().name) from None
            return answer

    async def RecoverMetadata(self, request: admin_pb2.RecoverMetadataRequest, context: Context) -> Any:  # noqa: N802
        store = await self._store(context)
        try:
            follow = UUID(request.follow) if request.follow else None
            gone = frozenset(map(UUID, request.gone))
        except ValueError:
            await refuse(
                context, "InvalidRequest", "a disk or cluster is named by its UUID: ListMembers names the disks"
            )
        identity, status, state = self._view.identity(), store.status(), store.read()
        me, nodes = UUID(identity.disk), reports.nodes(state.metadata)
        # Who follows declares nobody gone; that a majority is not there it sees for itself.
        why = why_not_recovered(status, me, gone) if follow is None else why_majority(status)
        others = [node for node in nodes if node.disk != me and node.disk not in gone]
        if why is None and follow is None:
            why = await forced_recovery.why_not_from_here(metadata_status(status, state), others)
        if why is not None:
            await refuse(context, "NotRecovered", why)
        if follow is not None:
            self._actions.recover(Order(follow, None, tuple(request.seeds)))
            self._actions.start_again()
            return admin_pb2.RecoverMetadataResponse(cluster_id=str(follow))
        cluster_id = uuid4()
        self._actions.recover(Order(cluster_id, gone, ()))
        seed = next(node.raft_address for node in nodes if node.disk == me)
        left_behind = await forced_recovery.lead_over(str(cluster_id), seed, others, self._secrets)
        self._actions.start_again()
        return admin_pb2.RecoverMetadataResponse(cluster_id=str(cluster_id), left_behind=left_behind)

    async def SetLogLevel(self, request: admin_pb2.SetLogLevelRequest, context: Context) -> Any:  # noqa: N802
        try:
            logs.change_level(request.level)
        except ValueError as wrong:
            await refuse(context, "InvalidRequest", str(wrong))
        return admin_pb2.SetLogLevelResponse()

    async def _node(self, context: Context, store: Store, disk: str) -> RegisteredNode:
        found = {str(known): node for known, node in store.read().nodes.items()}.get(disk)
        if found is None:
            await refuse(context, "UnknownNode", f"no member has the disk {disk!r}; ListMembers names them")
        return found

    def _alive(self, store: Store) -> list[int]:
        return self._view.present(store.read()).alive

    async def _current(self, store: Store) -> list[int]:
        """Nodes that are alive and have all that was acknowledged in their open segments: each is asked."""
        alive = set(self._alive(store))
        nodes = [node for node in reports.nodes(store.read().metadata) if node.node_id in alive]
        are_current = await asyncio.gather(*(self._is_current(node) for node in nodes))
        return [node.node_id for node, is_current in zip(nodes, are_current, strict=True) if is_current]

    async def _is_current(self, node: Node) -> bool:
        if str(node.disk) == self._view.identity().disk:
            return await asyncio.to_thread(self._view.open_behind, _LEADER_MS) == 0
        options = [("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(node.admin_address, options=options) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call] # generated
            try:
                answer: admin_pb2.CaughtUpResponse = await stub.CaughtUp(
                    admin_pb2.CaughtUpRequest(), timeout=_CURRENT_S
                )
            except grpc.aio.AioRpcError:
                return False
            return answer.open_whole

    async def _pass_on(
        self, context: Context, store: Store, leader: UUID, request: admin_pb2.TransferLeadershipRequest
    ) -> admin_pb2.TransferLeadershipResponse:
        """Ask the leader itself; whoever believes wrongly to know it is told so, and asks no further."""
        address = next((n.admin_address for n in reports.nodes(store.read().metadata) if n.disk == leader), "")
        passed_on = any(key == _PASSED_ON for key, _ in context.invocation_metadata() or ())
        if not address or passed_on:
            await refuse(context, "Unavailable", "the metadata leader is changing", retryable=True)
        async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call] # generated
            try:
                answer: admin_pb2.TransferLeadershipResponse = await stub.TransferLeadership(
                    request, timeout=remaining_s(context), metadata=((_PASSED_ON, "1"), authorization(self._secrets))
                )
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
                raise
            return answer
