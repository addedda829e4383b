"""One pass over one cluster: observe, plan, act, tell. What it does needs no memory of the pass before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from walrus_operator.act.contested import Contested
from walrus_operator.act.executor import Executor
from walrus_operator.api.cluster import API_VERSION, KIND, parse_spec
from walrus_operator.api.releases import RELEASES, Table
from walrus_operator.clock import Monotonic, Now, monotonic
from walrus_operator.kube.api import KubeApi, Missing
from walrus_operator.objects import Key, Manifest
from walrus_operator.observe.brokers import Brokers
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.snapshot import Cluster, Snapshot
from walrus_operator.plan.actions import Done, Gate, Plan, Wait
from walrus_operator.plan.deletion import plan_deletion
from walrus_operator.plan.patience import IDLE_S, Patience
from walrus_operator.plan.planner import plan
from walrus_operator.resting import Resting
from walrus_operator.status.conditions import Type, is_false
from walrus_operator.status.derive import derive
from walrus_operator.status.events import About, Event, events
from walrus_operator.status.forecast import Forecasts
from walrus_operator.status.writing import Writing, differing

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Takes Events."""

    async def record(self, about: About, happened: list[Event]) -> None:
        """Post what happened. Never fails the pass."""


@dataclass(frozen=True)
class Pass:
    """What one pass came to."""

    plan: Plan
    done: Done
    status_written: bool
    again_s: float
    contested: bool = False
    """Whether Kubernetes stored another status than was written."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """What there was to tell of the cluster."""

    @property
    def gates(self) -> frozenset[str]:
        """The gates that were met."""
        waits = frozenset(str(wait.gate) for wait in (*self.plan.waits, *self.done.waits))
        return waits | {str(Gate.CONTESTED)} if self.contested else waits

    @property
    def acts(self) -> tuple[str, ...]:
        """What was done, by the names of the actions."""
        return tuple(type(action).__name__ for action in self.done.actions)


class Reconciler:
    """Brings clusters to what they shall be."""

    def __init__(
        self,
        kube: KubeApi,
        brokers: Brokers,
        recorder: Recorder,
        now: Now,
        default_image: str,
        operator_namespace: str,
        monotonic: Monotonic = monotonic,
        releases: Table = RELEASES,
    ) -> None:
        self._kube = kube
        self._observer = Observer(kube, brokers, now)
        self._contested = Contested(monotonic)
        self._executor = Executor(kube, brokers, self._contested)
        self._recorder = recorder
        self._now = now
        self._default_image = default_image
        self._operator_namespace = operator_namespace
        self._monotonic = monotonic
        self._releases = releases
        # Only how often something is tried or told is remembered: what is to be done never depends on it.
        self._patience = Patience()
        self._writing = Writing()
        self._forecasts = Forecasts()
        self._resting = Resting()

    async def reconcile(self, key: Key, *, asked: bool = True) -> Pass | None:
        """One pass; None where there is no such cluster, or it is being deleted. Raises `KubeError`.

        Unless someone *asked* for it, of a cluster at rest only the brokers are looked at: mostly nothing has changed.
        """
        seen = None if asked else self._resting.seen(key, self._monotonic())
        if seen is not None and (rested := await self._glance(seen)) is not None:
            return rested
        self._resting.end(key)
        snapshot = await self._observer.look(key)
        if snapshot is None:
            self._patience.forget(key)
            self._forecasts.forget(key)
            return None
        if snapshot.cluster.deleting:
            return await self._end(snapshot)
        todo = self._plan(snapshot)
        todo = self._contested.held(todo)
        done = await self._executor.act(todo, snapshot)
        status = derive(snapshot, todo, done, self._now(), self._forecasts.look(snapshot))
        happened = events(snapshot.cluster.status, status, done)
        written, due = await self._tell(snapshot.cluster, status)
        await self._recorder.record(snapshot.cluster, happened)
        again = self._patience.after(key, todo, done, snapshot.at, copying=is_false(status, Type.REPLICATED))
        contested = self._writing.is_contested(snapshot.cluster.uid)
        if todo.is_idle and done == Done() and due is None and again == IDLE_S:
            self._resting.begin(snapshot, self._monotonic())
        return Pass(todo, done, written, min(again, due) if due else again, contested, status)

    async def _glance(self, before: Snapshot) -> Pass | None:
        """A pass that asks the brokers of a cluster at rest; None where there is anything to do or to tell."""
        snapshot = await self._observer.ask_brokers(before)
        todo = self._plan(snapshot)
        status = derive(snapshot, todo, Done(), self._now(), self._forecasts.look(snapshot))
        if not todo.is_idle or status != snapshot.cluster.status:
            return None
        return Pass(todo, Done(), status_written=False, again_s=IDLE_S, status=status)

    async def _end(self, snapshot: Snapshot) -> Pass | None:
        """What the deletion of the cluster waits for; None once that is nothing of ours."""
        todo = plan_deletion(snapshot)
        if todo.is_idle:
            self._writing.forget(snapshot.cluster.uid)
            return None
        done = await self._executor.act(todo, snapshot)
        written = False
        if todo.waits or done.waits:
            written, _ = await self._tell(snapshot.cluster, derive(snapshot, todo, done, self._now()))
        return Pass(todo, done, written, self._patience.after(snapshot.cluster.key, todo, done, snapshot.at))

    def _plan(self, snapshot: Snapshot) -> Plan:
        spec, invalid = None, tuple[Wait, ...]()
        try:
            spec = parse_spec(dict(snapshot.cluster.spec))
        except ValidationError as error:
            invalid = (Wait(Gate.INVALID, _explained(error)),)
        return plan(
            spec,
            snapshot,
            self._default_image,
            invalid,
            operator_namespace=self._operator_namespace,
            releases=self._releases,
        )

    async def _tell(self, cluster: Cluster, status: Manifest) -> tuple[bool, float | None]:
        """Write the status if it is due; whether it was written, and in how many seconds it is due otherwise."""
        due = self._writing.due_s(cluster.uid, cluster.status, status, self._monotonic())
        return due == 0.0 and await self._write(cluster, status), due

    async def _write(self, cluster: Cluster, status: Manifest) -> bool:
        """Write the status. Returns whether there was still a cluster for it."""
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            # With the uid, a status never lands on another cluster of the same name.
            "metadata": {"name": cluster.key.name, "namespace": cluster.key.namespace, "uid": cluster.uid},
            "status": status,
        }
        try:
            stored = await self._kube.apply_status(manifest)
        except Missing:
            return False
        was = self._writing.is_contested(cluster.uid)
        self._writing.wrote(cluster.uid, status, stored.get("status", {}), self._monotonic())
        if self._writing.is_contested(cluster.uid) and not was:
            log.warning(
                "%s: the status was stored as another one (%s): a definition that is older than this operator prunes"
                " it, or a webhook changes it; it is written ever more rarely. Apply the definition of this release",
                cluster.key,
                ", ".join(differing(status, stored.get("status", {}))),
            )
        return True


def _explained(error: ValidationError) -> str:
    """What is wrong, by field."""
    return "; ".join(
        f"spec.{'.'.join(map(str, part['loc']))}: {part['msg'].removeprefix('Value error, ')}"
        for part in error.errors()[:5]
    )
