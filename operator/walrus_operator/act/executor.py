"""Does what the plan says, in order; each step may be repeated. One that fails ends the pass: the next looks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from walrus_operator.kube.api import Conflict, Denied, KubeApi, Refused
from walrus_operator.objects import POD, Manifest, Ref, owned_by, ref_of, uid_of
from walrus_operator.observe.brokers import BrokerError, Brokers, ConfigMoved, ConfigRefused
from walrus_operator.observe.snapshot import Pod, Snapshot
from walrus_operator.plan.actions import (
    Action,
    Apply,
    Done,
    Gate,
    Grow,
    Plan,
    Prune,
    RestartPod,
    RollPod,
    SetConfig,
    SetReplication,
    TransferLeadership,
    Wait,
)

log = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818 - called by what happened
    """A step cannot be done now. Carries the gate that it met."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.detail)
        self.wait = wait


class Executor:
    """Does what plans say, through a `KubeApi` that lets only the holder of the lease write."""

    def __init__(self, kube: KubeApi, brokers: Brokers) -> None:
        self._kube = kube
        self._brokers = brokers

    async def act(self, plan: Plan, snapshot: Snapshot) -> Done:
        """Do the plan's actions until one cannot be done. Raises `KubeError` of what may be tried again."""
        done: list[Action] = []
        for action in plan.actions:
            try:
                await self._do(action, snapshot)
            except Stopped as stopped:
                return Done(tuple(done), (stopped.wait,))
            log.info("%s: %s", snapshot.cluster.key, action)
            done.append(action)
        return Done(tuple(done))

    async def _do(self, action: Action, snapshot: Snapshot) -> None:
        match action:
            case Apply():
                await self._not_theirs(action, snapshot)
                await self._apply(action.manifest)
            case Grow():
                await self._apply(action.manifest)
            case Prune():
                await self._kube.delete(action.ref, action.uid)
            case SetConfig():
                await self._tell(
                    snapshot, lambda host: self._brokers.set_config(host, action.entries, action.expect_version)
                )
            case SetReplication():
                await self._tell(snapshot, lambda host: self._brokers.set_replication(host, action.replication))
            case RestartPod():
                await self._restart(action, snapshot)
            case TransferLeadership():
                await self._transfer(action, snapshot)
            case RollPod():
                await self._roll(action, snapshot)

    async def _not_theirs(self, action: Apply, snapshot: Snapshot) -> None:
        """What does not bear our label was not seen; it is not taken over."""
        ref = ref_of(action.manifest)
        found = await self._kube.get(ref) if action.new else None
        if found is not None and not owned_by(found, snapshot.cluster.uid):
            raise Stopped(
                Wait(
                    Gate.NAME_TAKEN,
                    f"{ref} is there and does not belong to this cluster: delete it, or give this cluster another name",
                )
            )

    async def _apply(self, manifest: Manifest) -> None:
        try:
            await self._kube.apply(manifest)
        except (Refused, Denied) as refused:
            raise Stopped(Wait(Gate.OBJECT_REFUSED, str(refused))) from refused

    async def _tell(self, snapshot: Snapshot, tell: Callable[[str], Awaitable[object]]) -> None:
        """Asked of the metadata leader first: any broker takes it, that one needs no other for it."""
        members = [(broker.role != "Leader", name) for name, broker in snapshot.brokers.items() if broker is not None]
        hosts = [snapshot.pods[name].ip for _, name in sorted(members)]
        trouble = "no broker can be asked"
        for host in hosts:
            if host is None:
                continue
            try:
                await tell(host)
            except ConfigRefused as refused:
                raise Stopped(Wait(Gate.CONFIG_REFUSED, str(refused))) from refused
            except ConfigMoved as moved:
                raise Conflict(str(moved)) from moved
            except BrokerError as error:
                trouble = str(error)
                continue
            return
        raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"the configuration could not be set: {trouble}"))

    async def _restart(self, action: RestartPod, snapshot: Snapshot) -> None:
        """Look again with fresh eyes: only this pod, and only while its broker is still in no cluster."""
        ref = Ref(POD.name, snapshot.cluster.key.namespace, action.pod)
        found = await self._kube.get(ref)
        if found is None or uid_of(found) != action.uid:
            return
        pod = Pod.parse(found)
        try:
            broker = await self._brokers.look(pod.ip or "")
        except BrokerError as error:
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{action.pod} does not answer any more: {error}")) from error
        if broker.cluster_id:
            return
        await self._kube.delete(ref, action.uid)

    async def _transfer(self, action: TransferLeadership, snapshot: Snapshot) -> None:
        """To whoever has caught up; nobody else votes in a cluster that is still too young."""
        await self._all_caught_up(snapshot, without=action.pod)
        try:
            await self._brokers.transfer_leadership(snapshot.pods[action.pod].ip or "")
        except BrokerError as error:
            detail = f"nobody took over the metadata from {action.pod}: {error}"
            raise Stopped(Wait(Gate.NOT_CAUGHT_UP, detail)) from error

    async def _roll(self, action: RollPod, snapshot: Snapshot) -> None:
        """Look again with fresh eyes. A pod that does not run is nobody's loss; another one only goes when the others
        are whole, and say that they can do without it, unless they never could.
        """
        ref = Ref(POD.name, snapshot.cluster.key.namespace, action.pod)
        found = await self._kube.get(ref)
        if found is None or uid_of(found) != action.uid:
            return
        if Pod.parse(found).running:
            await self._all_caught_up(snapshot, without=action.pod)
            if action.spared:
                await self._can_stop(action.pod, snapshot)
        await self._kube.delete(ref, action.uid)

    async def _all_caught_up(self, snapshot: Snapshot, *, without: str) -> None:
        others = [pod for pod in snapshot.pods.values() if pod.name != without]
        told = await asyncio.gather(*(self._brokers.caught_up(pod.ip or "") for pod in others), return_exceptions=True)
        for pod, lacks in zip(others, told, strict=True):
            if isinstance(lacks, BrokerError):
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{pod.name} does not say whether it has caught up: {lacks}"))
            if isinstance(lacks, BaseException):
                raise lacks
            if lacks:
                raise Stopped(Wait(Gate.NOT_CAUGHT_UP, f"{pod.name} lacks {'; '.join(lacks)}"))

    async def _can_stop(self, name: str, snapshot: Snapshot) -> None:
        """Asked of the metadata leader, or else of any other broker."""
        leading, broker = snapshot.leader(), snapshot.brokers.get(name)
        others = [other for other in snapshot.pods if other != name]
        asked = leading[0] if leading and leading[0] in others else others[0]
        try:
            reasons = await self._brokers.can_stop(snapshot.pods[asked].ip or "", broker.disk if broker else "")
        except BrokerError as error:
            detail = f"{asked} does not say whether {name} may stop: {error}"
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, detail)) from error
        if reasons:
            raise Stopped(Wait(Gate.QUORUM_TIGHT, f"{name} may not stop now: {'; '.join(reasons)}"))
