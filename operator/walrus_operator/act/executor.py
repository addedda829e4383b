"""Does what the plan says, in order; each step may be repeated. One that is refused holds up only what needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from secrets import token_hex

from walrus_operator.act.contested import Contested
from walrus_operator.act.departing import Departing
from walrus_operator.act.lost import LostVolumes
from walrus_operator.act.stopped import Stopped
from walrus_operator.api.cluster import API_VERSION, KIND
from walrus_operator.desired.claims import sized_claim
from walrus_operator.desired.names import ADVERTISED, FINALIZER, LABEL_CLUSTER, LABEL_POOL
from walrus_operator.desired.placing import is_held, placed
from walrus_operator.desired.secret import SECRET_BYTES, shared_secret
from walrus_operator.kube.api import Conflict, Denied, Disrupting, KubeApi, KubeError, Missing, Refused, Unreachable
from walrus_operator.objects import CLAIM, POD, STATEFUL_SET, Manifest, Ref, owned_by, ref_of, uid_of
from walrus_operator.observe.brokers import (
    BrokerError,
    Brokers,
    ConfigMoved,
    ConfigRefused,
    LevelRefused,
    look_all,
)
from walrus_operator.observe.claims import is_labelled
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Cluster, Snapshot
from walrus_operator.plan.actions import (
    Action,
    Advertise,
    Apply,
    CancelDrain,
    Dismiss,
    Done,
    EnlargeClaim,
    FinalizeLevel,
    Gate,
    GiveUpDisk,
    Grow,
    HoldDeletion,
    MakeSecret,
    Place,
    Plan,
    Prune,
    RemakeSet,
    RemoveClaim,
    RemoveMember,
    RestartPod,
    RollPod,
    SetConfig,
    SetLogLevel,
    SetReplication,
    Shrink,
    StartDrain,
    TransferLeadership,
    Wait,
)
from walrus_operator.plan.departing import is_member
from walrus_operator.plan.needs import held_up, touched

log = logging.getLogger(__name__)


_GATES: dict[type[KubeError], Gate] = {
    Refused: Gate.OBJECT_REFUSED,
    Denied: Gate.FORBIDDEN,
    Disrupting: Gate.EVICTION_REFUSED,
    Unreachable: Gate.UNANSWERED,
    Conflict: Gate.CHANGED_MEANWHILE,
    Missing: Gate.CHANGED_MEANWHILE,
}


@dataclass
class _Progress:
    """What has been done of a plan so far."""

    done: list[Action] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    refused: set[Ref] = field(default_factory=set)


class Executor:
    """Does what plans say, through a `KubeApi` that lets only the holder of the lease write."""

    def __init__(self, kube: KubeApi, brokers: Brokers, contested: Contested) -> None:
        self._kube = kube
        self._brokers = brokers
        self._contested = contested
        self._departing = Departing(brokers)
        self._lost_volumes = LostVolumes(kube)

    async def act(self, plan: Plan, snapshot: Snapshot) -> Done:
        """Do the plan's actions and one of its steps, but those that need what could not be done.

        Raises `KubeError` where the cluster itself is another one than was looked at.
        """
        progress = _Progress()
        await self._all(plan.actions, snapshot, progress)
        await self._one(plan.steps, snapshot, progress)
        await self._all(plan.settings, snapshot, progress)
        return Done(tuple(progress.done), tuple(progress.waits))

    async def _all(self, actions: Iterable[Action], snapshot: Snapshot, progress: _Progress) -> None:
        names = snapshot.cluster.names
        for action in actions:
            done = not held_up(action, progress.refused, names) and await self._is_done(action, snapshot, progress)
            ref = touched(action, names)
            if not done and ref is not None:
                progress.refused.add(ref)

    async def _one(self, steps: Iterable[Action], snapshot: Snapshot, progress: _Progress) -> None:
        """The first that nothing stops. After an eviction of which nobody says whether it was done comes no other."""
        for step in steps:
            if held_up(step, progress.refused, snapshot.cluster.names):
                continue
            if await self._is_done(step, snapshot, progress):
                return
            if isinstance(step, RestartPod | RollPod) and progress.waits[-1].gate is Gate.UNANSWERED:
                return

    async def _is_done(self, action: Action, snapshot: Snapshot, progress: _Progress) -> bool:
        try:
            await self._do(action, snapshot)
        except Stopped as stopped:
            progress.waits.append(stopped.wait)
            return False
        log.info("%s: %s", snapshot.cluster.key, action)
        progress.done.append(action)
        return True

    async def _do(self, action: Action, snapshot: Snapshot) -> None:
        try:
            await self._step(action, snapshot)
        except tuple(_GATES) as error:
            if isinstance(action, HoldDeletion) and isinstance(error, Conflict | Missing):
                raise
            raise Stopped(Wait(_GATES[type(error)], str(error))) from error

    async def _step(self, action: Action, snapshot: Snapshot) -> None:
        match action:
            case Apply():
                await self._not_theirs(action, snapshot)
                await self._no_foreign_claims(action.manifest, snapshot)
                await self._apply(action.manifest)
            case MakeSecret():
                await self._kube.create(shared_secret(action.owner, token_hex(SECRET_BYTES)))
            case Grow():
                await self._no_foreign_claims(action.manifest, snapshot)
                await self._apply(action.manifest)
            case Dismiss():
                await self._dismiss(action, snapshot)
            case StartDrain():
                await self._departing.check(action.pod, action.departure.disk, snapshot)
                if snapshot.departures().get(action.pod) != action.departure:
                    await self._apply(action.noted)
                await self._departing.start(action.departure.disk, snapshot)
            case CancelDrain():
                await self._departing.cancel(action.disk, snapshot)
            case GiveUpDisk():
                await self._departing.check_silent(action.disk, snapshot)
                if action.volume is not None:
                    await self._lost_volumes.check(action, snapshot)
                    await self._departing.check_spared(action.pod, action.disk, snapshot)
                await self._apply(action.noted)
                await self._departing.give_up(action.disk, action.by, snapshot)
            case RemoveMember():
                await self._departing.check(action.pod, action.disk, snapshot)
                await self._departing.remove(action.pod, action.disk, snapshot)
            case Shrink():
                await self._departing.check_out(action.disk, snapshot)
                await self._apply(action.manifest)
            case EnlargeClaim():
                await self._enlarge(action)
            case RemakeSet():
                await self._remake(action)
            case RemoveClaim():
                await self._remove_claim(action)
            case HoldDeletion():
                await self._kube.apply(_marked(snapshot.cluster, held=action.held))
            case Prune():
                await self._kube.delete(action.ref, action.uid)
            case SetConfig():
                await self._tell(
                    snapshot,
                    lambda host: self._brokers.set_config(
                        host, action.entries, action.unset, action.expect_version, snapshot.credentials()
                    ),
                )
            case SetReplication():
                await self._tell(
                    snapshot,
                    lambda host: self._brokers.set_replication(host, action.replication, snapshot.credentials()),
                )
            case SetLogLevel():
                await self._set_log_level(action, snapshot)
            case FinalizeLevel():
                await self._finalize(action, snapshot)
            case Advertise():
                await self._kube.apply(_advertised(action, snapshot.cluster))
            case Place():
                await self._place(action, snapshot)
            case RestartPod():
                await self._restart(action, snapshot)
            case TransferLeadership():
                await self._transfer(action, snapshot)
            case RollPod():
                await self._roll(action, snapshot)

    async def _apply(self, manifest: Manifest) -> None:
        self._contested.applied(manifest, await self._kube.apply(manifest))

    async def _not_theirs(self, action: Apply, snapshot: Snapshot) -> None:
        """What does not bear our label was not seen; it is not taken over. What is ours was planned without it."""
        ref = ref_of(action.manifest)
        found = await self._kube.get(ref) if action.new else None
        if found is not None and owned_by(found, snapshot.cluster.uid):
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, f"{ref} is there already, though a list did not show it"))
        if found is not None:
            raise Stopped(
                Wait(
                    Gate.NAME_TAKEN,
                    f"{ref} is there and does not belong to this cluster: delete it, or give this cluster another name",
                )
            )

    async def _no_foreign_claims(self, manifest: Manifest, snapshot: Snapshot) -> None:
        """A pod mounts the claim of its name, and two clusters can share one: each is looked up before. So is whether
        it bears a disk that left the cluster, which never comes back. One that only began to go is a member, and does;
        and where no broker says so, for they are all to be made again, none of them is kept from it by one.
        """
        if manifest["kind"] != STATEFUL_SET.name or not manifest["spec"].get("volumeClaimTemplates"):
            return
        pool = manifest["metadata"]["labels"][LABEL_POOL]
        found = snapshot.sets().get(pool)
        had = int(found["spec"].get("replicas", 0)) if found is not None else 0
        names = snapshot.cluster.names
        for ordinal in range(had, manifest["spec"]["replicas"]):
            ref = Ref(CLAIM.name, names.namespace, names.claim(names.pod(pool, ordinal)))
            claim = await self._kube.get(ref)
            if claim is not None and not is_labelled(claim, names, pool):
                labels = claim["metadata"].get("labels", {})
                owner = f"{LABEL_CLUSTER}={labels.get(LABEL_CLUSTER, '')}, {LABEL_POOL}={labels.get(LABEL_POOL, '')}"
                raise Stopped(
                    Wait(
                        Gate.NAME_TAKEN,
                        f"{ref} is there and belongs to something else ({owner}): the brokers of pool {pool} would"
                        " serve its records. Give the cluster or the pool another name; or label the claim as one of"
                        " this pool, if it is",
                    )
                )
            departure = snapshot.departures().get(names.pod(pool, ordinal))
            if (
                claim is not None
                and departure is not None
                and departure.claim == uid_of(claim)
                and is_member(departure.disk, snapshot) is False
            ):
                raise Stopped(
                    Wait(
                        Gate.REMOVED_DISK,
                        f"{ref} bears disk {departure.disk}, which left the cluster, and no broker can start on it."
                        f" Whoever needs nothing of it any more deletes it: kubectl -n {ref.namespace} delete"
                        f" persistentvolumeclaim {ref.name}",
                    )
                )

    async def _dismiss(self, action: Dismiss, snapshot: Snapshot) -> None:
        """Ask once more: it may have joined in this very moment."""
        leading = snapshot.leader()
        if leading is not None:
            host = snapshot.pods[leading[0]].ip or ""
            try:
                told = await self._brokers.look(host)
            except BrokerError as error:
                detail = f"{leading[0]} does not say whether {action.pod} joined: {error}"
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, detail)) from error
            if any(member.name == action.pod for member in told.members):
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{action.pod} has just joined: it is looked at again"))
        await self._apply(action.manifest)

    async def _enlarge(self, action: EnlargeClaim) -> None:
        try:
            await self._kube.apply(sized_claim(action.ref, action.uid, action.size))
        except (Denied, Refused) as error:
            back = f"set size back to {action.had}, what it has, or let it grow"
            raise Stopped(Wait(Gate.RESIZE_FAILED, f"{action}: {error}; {back}")) from error

    async def _remake(self, action: RemakeSet) -> None:
        """What is noted is what was looked at: the StatefulSet is asked for once more."""
        found = await self._kube.get(action.ref)
        if found is None or uid_of(found) != action.uid:
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, f"{action.ref} is another one since, and is looked at again"))
        await self._apply(action.noted)
        await self._kube.delete(action.ref, action.uid, orphan=True)

    async def _remove_claim(self, action: RemoveClaim) -> None:
        found = await self._kube.get(action.ref)
        if found is None or uid_of(found) != action.uid:
            return
        if action.unbound and (found["spec"].get("volumeName") or found.get("status", {}).get("phase") == "Bound"):
            return
        await self._kube.delete(action.ref, action.uid)

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
        raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"the brokers could not be told: {trouble}"))

    async def _finalize(self, action: FinalizeLevel, snapshot: Snapshot) -> None:
        """Brokers refuse it themselves where a member that has just come does not know the level."""
        try:
            await self._tell(
                snapshot, lambda host: self._brokers.finalize_level(host, action.level, snapshot.credentials())
            )
        except LevelRefused as refused:
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, f"level {action.level} is not used yet: {refused}")) from refused

    async def _set_log_level(self, action: SetLogLevel, snapshot: Snapshot) -> None:
        try:
            await self._brokers.set_log_level(snapshot.pods[action.pod].ip or "", action.level, snapshot.credentials())
        except ConfigRefused as refused:
            raise Stopped(Wait(Gate.CONFIG_REFUSED, f"{action.pod}: {refused}")) from refused
        except BrokerError as error:
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"the log level could not be set: {error}")) from error

    async def _place(self, action: Place, snapshot: Snapshot) -> None:
        """Only this pod, and only while it is held: where it is placed cannot be said twice."""
        found = await self._kube.get(Ref(POD.name, snapshot.cluster.key.namespace, action.pod))
        if found is not None and uid_of(found) == action.uid and is_held(found):
            await self._kube.replace(placed(found, action.node, action.taken))

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
        await self._kube.evict(ref, action.uid)

    async def _transfer(self, action: TransferLeadership, snapshot: Snapshot) -> None:
        """To whoever has caught up; nobody else votes in a cluster that is still too young."""
        await self._all_caught_up(snapshot, without=action.pod)
        try:
            await self._brokers.transfer_leadership(snapshot.pods[action.pod].ip or "", snapshot.credentials())
        except BrokerError as error:
            detail = f"nobody took over the metadata from {action.pod}: {error}"
            raise Stopped(Wait(Gate.NOT_CAUGHT_UP, detail)) from error

    async def _roll(self, action: RollPod, snapshot: Snapshot) -> None:
        """Look again with fresh eyes. A pod that does not run is nobody's loss; one that does not serve goes if the
        others can do without it; another one only when they are whole, too.
        """
        ref = Ref(POD.name, snapshot.cluster.key.namespace, action.pod)
        found = await self._kube.get(ref)
        if found is None or uid_of(found) != action.uid:
            return
        pod = Pod.parse(found)
        if action.broken and pod.ready:
            return
        if action.broken and pod.running:
            await self._not_missed(action, snapshot)
        elif pod.running:
            await self._all_caught_up(snapshot, without=action.pod)
            if action.spared:
                broker = snapshot.brokers.get(action.pod)
                await self._can_stop(action.pod, broker.disk if broker is not None else "", snapshot)
        await self._kube.evict(ref, action.uid)

    async def _not_missed(self, action: RollPod, snapshot: Snapshot) -> None:
        """Nobody who leads hears from it, or whoever leads can do without it; that nobody leads is asked again."""
        if snapshot.leader() is None:
            hosts = {pod.name: pod.ip for pod in snapshot.pods.values() if pod.ip is not None and pod.running}
            told = await look_all(self._brokers, hosts)
            leads = sorted(name for name, broker in told.items() if broker is not None and broker.role == "Leader")
            if leads:
                detail = (
                    f"{leads[0]} leads the metadata since just now: whether it misses {action.pod}, it is asked next"
                )
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, detail))
        member = snapshot.member(action.pod)
        if member is not None and member.alive and action.spared:
            await self._can_stop(action.pod, member.disk, snapshot)

    async def _all_caught_up(self, snapshot: Snapshot, *, without: str) -> None:
        others = [
            pod for pod in snapshot.pods.values() if pod.name != without and snapshot.joined(pod.name) is not False
        ]
        told = await asyncio.gather(*(self._brokers.caught_up(pod.ip or "") for pod in others), return_exceptions=True)
        for pod, lacks in zip(others, told, strict=True):
            if isinstance(lacks, BrokerError):
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{pod.name} does not say whether it has caught up: {lacks}"))
            if isinstance(lacks, BaseException):
                raise lacks
            if lacks:
                raise Stopped(Wait(Gate.NOT_CAUGHT_UP, f"{pod.name} lacks {'; '.join(lacks)}"))

    async def _can_stop(self, name: str, disk: str, snapshot: Snapshot) -> None:
        """Asked of the metadata leader, or else of any other broker."""
        leading = snapshot.leader()
        others = [other for other in snapshot.pods if other != name]
        asked = leading[0] if leading and leading[0] in others else others[0]
        try:
            reasons = await self._brokers.can_stop(snapshot.pods[asked].ip or "", disk)
        except BrokerError as error:
            detail = f"{asked} does not say whether {name} may stop: {error}"
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, detail)) from error
        if reasons:
            raise Stopped(Wait(Gate.QUORUM_TIGHT, f"{name} may not stop now: {'; '.join(reasons)}"))


def _advertised(action: Advertise, cluster: Cluster) -> Manifest:
    """The pod with its annotation. With the uid, it never lands on another pod of the same name."""
    return {
        "apiVersion": POD.api_version,
        "kind": POD.name,
        "metadata": {
            "name": action.pod,
            "namespace": cluster.key.namespace,
            "uid": action.uid,
            "annotations": {ADVERTISED: action.addresses},
        },
    }


def _marked(cluster: Cluster, *, held: bool) -> Manifest:
    """The cluster with our finalizer or without; nothing else of it is said, so nothing else changes."""
    metadata: Manifest = {"name": cluster.key.name, "namespace": cluster.key.namespace, "uid": cluster.uid}
    if held:
        metadata["finalizers"] = [FINALIZER]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
