"""The node's duties towards the metadata: register, renew the lease, do what the data plane asks, keep the voters
and the level of commands.

Every outcome is waited for: an unknown one is proposed again under the same command id until it is known.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import walrus_core

from walrus_node.advertised import AdvertisedAddresses
from walrus_node.commands import (
    PAUSE_S,
    PROPOSE_MAX_S,
    envelope,
    execute,
    now_ms,
    propose,
    raise_level,
    register,
    renew_lease,
)
from walrus_node.metadata.admission import Registration
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.membership import AddVoter, plan_voters
from walrus_node.metadata.raft_metrics import RaftMetrics
from walrus_node.metadata.reports import Listener, nodes
from walrus_node.metadata.store import Applied, MetadataStore, Rejected, Unknown
from walrus_node.presence import LEASE_MS, Presence, boottime_ns
from walrus_node.upkeep import CopyKeeper, RetentionKeeper

log = logging.getLogger(__name__)

RENEW_S = 1.0
# For a barrier: whoever waits for it has little more patience.
_BARRIER_S = 1.5
# How often a command is built anew because the state it was built from had moved on.
_REBUILDS_MAX = 8
_POLL_MS = 1_000
_REQUESTS_MAX = 256
# Level of commands of a cluster that has just been founded.
_FOUNDED_LEVEL = 1


class DataPlane(Protocol):
    """What the controller uses of `walrus_core.DataPlane`."""

    def poll_events(self, max: int, timeout_ms: int) -> list[tuple[int, str]]: ...  # noqa: A002 - its name there
    def complete(self, request_id: int, answer_json: str) -> None: ...
    def set_raft_status(self, status_json: str) -> None: ...


class Controller:
    """Runs in the event loop, except for the one thread that waits for the data plane's requests."""

    def __init__(
        self,
        node_id: int,
        registration: Registration,
        listeners: AdvertisedAddresses,
        store: MetadataStore[ClusterState],
        data_plane: DataPlane,
        presence: Presence,
        data_dir: Path,
        *,
        zone: str,
        finalizes: bool,
    ) -> None:
        self._node_id = node_id
        self._data_dir = data_dir
        self._registration = registration
        self._listeners = listeners
        self._store = store
        self._data_plane = data_plane
        self._presence = presence
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll_events, name="events", daemon=True)
        self.registered = asyncio.Event()
        # By CLOCK_BOOTTIME, from when it was asked for.
        self._lease_until_ms = 0
        self._removed = False
        self._told_status = ""
        self._changing_voters: asyncio.Task[None] | None = None
        self._finalizes = finalizes
        self._raising_level: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._told_listeners: tuple[Listener, ...] = ()
        self._zone = zone
        self._told_zone = ""
        self.copies = CopyKeeper(store, presence)
        self._keeping_copies: asyncio.Task[None] | None = None
        self._retention = RetentionKeeper(store)
        self._keeping_retention: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin: registration first, then the lease, the voters and the data plane's requests."""
        self._spawn(self._serve())
        self._poller.start()

    async def stop(self) -> None:
        """Drop what is under way: its outcome is learned by whoever asks again."""
        self._stopping.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def missing(self) -> list[str]:
        """What keeps this node from being ready."""
        if not self.registered.is_set():
            return ["registration: this process is not yet in the metadata"]
        if self._removed:
            return ["removal: this disk was taken out of the cluster; give the node an empty data directory"]
        if self._lease_until_ms < _boottime_ms():
            return ["lease: not renewed in time, the metadata has no majority or no leader"]
        return []

    async def _serve(self) -> None:
        self._told_zone = self._zone_that_all_know()
        await register(self._store, replace(self._registration, zone=self._told_zone))
        await self._renew_lease()
        self.registered.set()
        while True:
            started = time.monotonic()
            self._tell_status()
            if self._changing_voters is None or self._changing_voters.done():
                self._changing_voters = self._spawn(self._keep_voters())
            listeners, zone = self._listeners_that_all_know(), self._zone_that_all_know()
            is_telling = self._telling is not None and not self._telling.done()
            if (listeners, zone) != (self._told_listeners, self._told_zone) and not is_telling:
                self._telling = self._spawn(self._tell(listeners, zone))
            if self._raising_level is None or self._raising_level.done():
                self._raising_level = self._spawn(self._raise_level())
            if self._keeping_copies is None or self._keeping_copies.done():
                self._keeping_copies = self._spawn(self.copies.look())
            if self._keeping_retention is None or self._keeping_retention.done():
                self._keeping_retention = self._spawn(self._retention.look())
            await self._renew_lease()
            await asyncio.sleep(max(PAUSE_S, RENEW_S - (time.monotonic() - started)))

    async def _renew_lease(self) -> None:
        asked_ms = _boottime_ms()
        process, disk_bytes = self._registration.process, self._disk_bytes()
        command = renew_lease(self._node_id, process, asked_boottime_ms=asked_ms, disk_bytes=disk_bytes)
        outcome = await asyncio.wrap_future(self._store.propose(envelope(command), timeout=LEASE_MS / 1_000))
        if isinstance(outcome, Applied):
            self._lease_until_ms = asked_ms + LEASE_MS
        elif isinstance(outcome, Rejected):
            self._removed = outcome.reason == "UnknownNode"
            log.error("the lease is refused: %s", outcome.message)

    def _disk_bytes(self) -> int:
        """The size of the file system that the data lie on, which may grow; 0 until all members know such."""
        if not self._store.read().metadata.knows_disk_sizes():
            return 0
        return shutil.disk_usage(self._data_dir).total

    def _listeners_that_all_know(self) -> tuple[Listener, ...]:
        """The listeners as clients reach them now, once every member understands their registration."""
        return self._listeners.now() if self._store.read().metadata.knows_placement() else ()

    def _zone_that_all_know(self) -> str:
        """The zone of this node, once every member understands a registration with it."""
        return self._zone if self._store.read().metadata.knows_zones() else ""

    async def _tell(self, listeners: tuple[Listener, ...], zone: str) -> None:
        """Say where clients are served, and where this node is."""
        # Those that every node has lie in fields of their own.
        own = {one.protocol: one.address for one in listeners if one.is_default}
        here = replace(
            self._registration,
            text_address=own.get("text", self._registration.text_address),
            grpc_address=own.get("grpc", self._registration.grpc_address),
            listeners=tuple(one for one in listeners if not one.is_default),
            zone=zone,
        )
        await register(self._store, here)
        self._told_listeners, self._told_zone = listeners, zone

    async def _keep_voters(self) -> None:
        status = self._store.status()
        if not status.is_leader:
            return
        state = self._store.read()
        if self._registration.disk not in state.nodes and len(status.voters()) > 1:
            self._store.transfer(None)  # the next leader takes this disk's vote away
            return
        staying = set(self._presence.look(state).staying)
        away = frozenset(disk for disk, node in state.nodes.items() if node.node_id not in staying)
        zones = {node.disk: node.zone for node in nodes(state.metadata)}
        change = plan_voters(status, self._registration.disk, zones, away)
        if change is None:
            return
        move = self._store.add_voter if isinstance(change, AddVoter) else self._store.remove_voter
        outcome = await asyncio.wrap_future(move(change.disk, timeout=PROPOSE_MAX_S))
        log.info("%s: %s", change, type(outcome).__name__.lower())

    async def _raise_level(self) -> None:
        """Commands that all members know by now may be used, where nobody wants to say so.

        A cluster that has just been founded has no release to go back to, and waits for nobody.
        """
        metadata = self._store.read().metadata
        level = metadata.reachable_level() if self._store.status().is_leader else None
        if level is None or not (self._finalizes or metadata.level == _FOUNDED_LEVEL):
            return
        outcome = await execute(self._store, raise_level(level))
        if isinstance(outcome, Rejected):
            log.info("commands of level %d are not used yet: %s", level, outcome.message)
        else:
            log.info("all members know commands of level %d: they are used from now on", level)

    def _tell_status(self) -> None:
        status = RaftMetrics.of(self._store.status(), self._store.read()).to_json()
        if status != self._told_status:
            self._told_status = status
            self._data_plane.set_raft_status(status)

    # Requests of the data plane

    def _poll_events(self) -> None:
        while not self._stopping.is_set():
            for request_id, request in self._data_plane.poll_events(_REQUESTS_MAX, _POLL_MS):
                try:
                    self._loop.call_soon_threadsafe(self._accept, request_id, request)
                except RuntimeError:  # the loop has closed
                    return

    def _accept(self, request_id: int, request: str) -> None:
        if not self._stopping.is_set():
            self._spawn(self._answer(request_id, request))

    async def _answer(self, request_id: int, request: str) -> None:
        """The store has published the new state before the outcome is here, so the data plane knows it by then."""
        self._data_plane.complete(request_id, await self._carry_out(request))

    async def _carry_out(self, request: str) -> str:
        """Carry a request out, planned anew if the state has moved on meanwhile."""
        for _ in range(_REBUILDS_MAX):
            state = self._store.read()
            plan = state.metadata.plan(request, self._presence.look(state))
            if plan.is_barrier:
                return await self._barrier(plan)
            proposal = plan.envelope(now_ms())
            outcome = None if proposal is None else await propose(self._store, proposal)
            answer = plan.answer(outcome.to_json() if isinstance(outcome, Rejected) else None)
            if answer is not None:
                return answer
            await asyncio.sleep(PAUSE_S)
        return walrus_core.Plan.unavailable("the metadata change faster than this node can follow")

    async def _barrier(self, plan: walrus_core.Plan) -> str:
        """Wait until this node knows, and the data plane with it, all that was committed before the call."""
        outcome = await asyncio.wrap_future(self._store.barrier(timeout=_BARRIER_S))
        answer = plan.answer() if isinstance(outcome, Applied) else None
        if answer is not None:
            return answer
        why = outcome.why if isinstance(outcome, Unknown) else "the barrier was refused"
        return walrus_core.Plan.unavailable(f"the metadata may hold more than this node knows: {why}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a duty of the controller failed", exc_info=task.exception())


def _boottime_ms() -> int:
    return boottime_ns() // 1_000_000
