"""What every call of the admin service has: the node, its metadata, the time of the caller, the way of a command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

import grpc.aio
import walrus_core
from walrus_client.v1 import admin_pb2, admin_pb2_grpc

from walrus_node.admin.refusals import refuse, refuse_as
from walrus_node.commands import Command, carry_out, execute
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.remains import Remains
from walrus_node.metadata.store import Applied, MetadataStore, Rejected

Context = grpc.aio.ServicerContext[Any, Any]
Store = MetadataStore[ClusterState]

# For a caller that names no deadline.
_COMMAND_MAX_S = 30.0
# Before the caller's deadline, so that it hears why.
_ANSWER_S = 0.2
_NOBODY_KNOWS = "nobody knows in time whether it was done: the metadata has no majority or no leader"


class View(Protocol):
    """What the service shows of this node. Its answers are asked for anew with each request, and quick but for two."""

    def identity(self) -> admin_pb2.IdentityResponse: ...
    def missing(self) -> list[str]: ...
    def storage(self) -> admin_pb2.StorageStatus: ...
    def level(self) -> int:
        """Up to which level this node knows commands of the metadata."""

    def wire_versions(self) -> admin_pb2.WireVersions: ...
    def store(self) -> Store | None:
        """The metadata; `None` as long as the node is in no cluster."""

    def present(self, state: ClusterState) -> walrus_core.Present:
        """Who is there now, as this node sees it."""

    def limits(self, state: ClusterState) -> str:
        """What is in force on this node where no topic says otherwise, as `Metadata.compare_topics` takes it."""

    def open_behind(self, timeout_ms: int) -> int | None:
        """Open segments that are not whole here, leaders being given so long; `None` before it serves. Slow."""

    def remains(self) -> list[Remains] | None:
        """What lies on this disk of topics that the metadata do not name; `None` before it serves. Slow."""


class Calls(admin_pb2_grpc.AdminServicer):
    """What calls share. A refusal ends the call that it is met in."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def _store(self, context: Context) -> Store:
        store = self._view.store()
        if store is None:
            missing = "; ".join(self._view.missing())
            await refuse(context, "NotAdmitted", f"this node is in no cluster yet: {missing}", retryable=True)
        return store

    async def _execute(self, context: Context, command: Command, *, expect: int | None = None) -> Applied:
        """Propose until the outcome is known, within the caller's time."""
        store = await self._store(context)
        try:
            async with asyncio.timeout(remaining_s(context)):
                outcome = await execute(store, command, expect=expect)
        except TimeoutError:
            await refuse(context, "OutcomeUnknown", _NOBODY_KNOWS, retryable=True)
        if isinstance(outcome, Rejected):
            await refuse_as(context, outcome)
        return outcome

    async def _request(self, context: Context, request: Mapping[str, object]) -> Any:
        """Have a request carried out, within the caller's time."""
        store = await self._store(context)
        try:
            async with asyncio.timeout(remaining_s(context)):
                return await carry_out(store, self._view.present, json.dumps(request))
        except TimeoutError:
            await refuse(context, "OutcomeUnknown", _NOBODY_KNOWS, retryable=True)
        except ValueError as wrong:  # its text is the one of a parser
            await refuse(context, "InvalidRequest", str(wrong))
        except walrus_core.Rejected as refused:
            await refuse(context, refused.reason, str(refused), facts=refused.facts)
        except walrus_core.RetryableError as later:
            await refuse(context, later.reason, str(later), retryable=True)


def remaining_s(context: Context) -> float:
    """What is left of the caller's time."""
    remaining = context.time_remaining()
    return _COMMAND_MAX_S if remaining is None else min(remaining - _ANSWER_S, _COMMAND_MAX_S)
