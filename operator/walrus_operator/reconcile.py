"""One pass over one cluster: observe, plan, act, tell. Level-triggered: it needs no memory of the last one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from walrus_operator.act.executor import Executor
from walrus_operator.api.cluster import API_VERSION, KIND, ClusterSpec, parse_spec
from walrus_operator.clock import Now
from walrus_operator.kube.api import KubeApi, Missing
from walrus_operator.objects import Key, Manifest
from walrus_operator.observe.brokers import Brokers
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.snapshot import Cluster, Snapshot
from walrus_operator.plan.actions import Done, Gate, Plan, Wait
from walrus_operator.plan.planner import plan
from walrus_operator.status.derive import derive
from walrus_operator.status.events import Event, events

log = logging.getLogger(__name__)

SETTLED_SECONDS = 20.0
"""How soon a cluster that is as it shall be is looked at again: brokers tell Kubernetes only whether they are ready."""
MOVING_SECONDS = 1.0
BLOCKED_SECONDS = 10.0


class Recorder(Protocol):
    """Takes Events."""

    async def record(self, cluster: Cluster, happened: list[Event]) -> None:
        """Post what happened. Never fails the pass."""


@dataclass(frozen=True)
class Pass:
    """What one pass came to."""

    plan: Plan
    done: Done
    status_written: bool
    again_seconds: float


class Reconciler:
    """Brings clusters to what they shall be."""

    def __init__(self, kube: KubeApi, brokers: Brokers, recorder: Recorder, now: Now, image_repository: str) -> None:
        self._kube = kube
        self._observer = Observer(kube, brokers)
        self._executor = Executor(kube, brokers)
        self._recorder = recorder
        self._now = now
        self._image_repository = image_repository

    async def reconcile(self, key: Key) -> Pass | None:
        """One pass; None where there is no such cluster, or it is being deleted. Raises `KubeError`."""
        snapshot = await self._observer.look(key)
        if snapshot is None or snapshot.cluster.deleting:
            return None
        spec, todo = self._plan(snapshot)
        done = await self._executor.act(todo, snapshot)
        status = derive(spec, snapshot, todo, done, self._now())
        happened = events(snapshot.cluster.status, status, done)
        written = await self._write(snapshot.cluster, status)
        await self._recorder.record(snapshot.cluster, happened)
        return Pass(todo, done, written, _again_seconds(todo, done))

    def _plan(self, snapshot: Snapshot) -> tuple[ClusterSpec | None, Plan]:
        try:
            spec = parse_spec(dict(snapshot.cluster.spec))
        except ValidationError as error:
            return None, Plan(waits=(Wait(Gate.INVALID, _explained(error)),))
        return spec, plan(spec, snapshot, self._image_repository)

    async def _write(self, cluster: Cluster, status: Manifest) -> bool:
        """Write the status, if it is another one."""
        if status == cluster.status:
            return False
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            # With the uid, a status never lands on another cluster of the same name.
            "metadata": {"name": cluster.key.name, "namespace": cluster.key.namespace, "uid": cluster.uid},
            "status": status,
        }
        try:
            await self._kube.apply_status(manifest)
        except Missing:
            return False
        return True


def _again_seconds(todo: Plan, done: Done) -> float:
    if done.actions:
        return 0.2
    waits = {wait.gate for wait in (*todo.waits, *done.waits)}
    if waits & {
        Gate.POD_PENDING,
        Gate.NOT_FOUNDED,
        Gate.UNKNOWN_BROKER,
        Gate.NAME_TAKEN,
        Gate.NOT_CAUGHT_UP,
        Gate.QUORUM_TIGHT,
    }:
        return MOVING_SECONDS
    return BLOCKED_SECONDS if waits else SETTLED_SECONDS


def _explained(error: ValidationError) -> str:
    """What is wrong, by field."""
    return "; ".join(f"spec.{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()[:5])
