"""What is well with a cluster and what is not, each with the way out: as a person would look by hand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from walrus_operator.api.crdgen import crd, topic_crd
from walrus_operator.cli.orders import ordered
from walrus_operator.cli.told import is_as_wished, lifted_by
from walrus_operator.desired.names import DRAIN, PAUSE, PAUSE_UNTIL
from walrus_operator.objects import POD, Manifest
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Broker, Snapshot
from walrus_operator.plan.actions import REFUSED
from walrus_operator.plan.departing import is_member
from walrus_operator.runtime.definition import difference
from walrus_operator.status.conditions import DISK_PERCENT_MAX, Type

_NEARLY_FULL_PERCENT = 80
_CLOCK_S = 5.0
_WARNINGS = frozenset({str(Type.SURVIVES_ZONE_LOSS)})
"""Conditions that are false of clusters which serve: their users may have wanted no more."""


class Verdict(StrEnum):
    """What an examination came to."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_SEEN = "not seen"
    """These rights do not allow to look."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    found: str
    way_out: str = ""


Hidden = str
"""Why something may not be looked at."""


@dataclass(frozen=True)
class Facts:
    """What is there, each of it as far as it may be looked at."""

    cluster: Manifest
    snapshot: Snapshot
    """With what brokers told over port-forwards."""
    troubles: Mapping[str, str]
    """Why brokers could not be asked, by pod."""
    definitions: Mapping[str, Manifest | Hidden | None]
    """The definitions of the resources, by name."""
    operator_namespace: str
    lease: Manifest | Hidden | None
    operators: Sequence[Pod] | Hidden
    lacking: Sequence[str] | Hidden
    """Rights that the operator should have and has not."""
    now: datetime
    """The API server's time."""
    ahead_s: float
    """How far the clock of this machine is ahead of it."""
    own_version: str
    images: Mapping[str, str] = field(default_factory=dict)
    """Images of the operators, by pod."""


def examined(facts: Facts) -> list[Finding]:
    """All findings; every check has at least one."""
    found: list[Finding] = []
    for name, check in _CHECKS.items():
        told = list(check(facts))
        found += [Finding(name, *one) for one in told or [(Verdict.OK, _FINE[name], "")]]
    return found


_Told = tuple[Verdict, str, str]
"""Verdict, what was found, and the way out."""


def _definitions(facts: Facts) -> Iterator[_Told]:
    wanted = {made["metadata"]["name"]: made for made in (crd(), topic_crd())}
    for name, found in facts.definitions.items():
        if isinstance(found, Hidden):
            yield Verdict.NOT_SEEN, f"{name}: {found}", "ask someone who may read customresourcedefinitions"
        elif (told := difference(wanted[name], found)) is not None:
            yield Verdict.FAILED, f"{name} {told}", "kubectl apply --server-side -f crds/, of the operator's release"


def _operator(facts: Facts) -> Iterator[_Told]:
    where = f"namespace {facts.operator_namespace}"
    if isinstance(facts.lease, Hidden):
        yield Verdict.NOT_SEEN, facts.lease, f"ask someone who may read leases in {where}"
    elif facts.lease is None:
        yield Verdict.FAILED, f"there is no lease in {where}", "install the operator, or name --operator-namespace"
    else:
        yield from _held(facts.lease, facts.now, where)
    if isinstance(facts.operators, Hidden):
        yield Verdict.NOT_SEEN, facts.operators, f"ask someone who may read pods in {where}"
        return
    for pod in facts.operators:
        if not pod.ready and not pod.deleting:
            told = f"{pod.name} is not ready{pod.trouble and ': '}{pod.trouble or ''}"
            yield Verdict.WARNING, told, f"kubectl -n {facts.operator_namespace} logs {pod.name}"


def _held(lease: Manifest, now: datetime, where: str) -> Iterator[_Told]:
    spec = lease.get("spec", {})
    look = f"kubectl -n {lease['metadata']['namespace']} get pods, and the log of the operator's"
    renewed = _time(spec.get("renewTime"))
    if not spec.get("holderIdentity") or renewed is None:
        yield Verdict.FAILED, f"no operator holds the lease in {where}", look
        return
    silent = now - renewed
    if silent > timedelta(seconds=spec.get("leaseDurationSeconds", 0)) + timedelta(seconds=_CLOCK_S):
        told = f"{spec['holderIdentity']} has not renewed its lease for {silent.total_seconds():.0f} s"
        yield Verdict.FAILED, told, look


def _looked_at(facts: Facts) -> Iterator[_Told]:
    status, metadata = facts.cluster.get("status") or {}, facts.cluster["metadata"]
    watch = "watch.namespaces of the operator's chart has to name its namespace"
    if not status or status.get("phase") == "NotWatched":
        yield Verdict.FAILED, "no operator looks after this cluster", watch
    elif status.get("observedGeneration") != metadata.get("generation"):
        yield Verdict.WARNING, "the status is of a spec before the present one", "see the check of the operator"


def _rights(facts: Facts) -> Iterator[_Told]:
    if isinstance(facts.lacking, Hidden):
        yield Verdict.NOT_SEEN, facts.lacking, "ask someone who may create subjectaccessreviews"
    elif facts.lacking:
        told = f"the operator may not: {', '.join(facts.lacking)}"
        yield Verdict.FAILED, told, "helm upgrade its chart, or add the rules of its Role by hand"


def _pods(facts: Facts) -> Iterator[_Told]:
    snapshot = facts.snapshot
    if POD.name in snapshot.unseen:
        yield Verdict.NOT_SEEN, snapshot.unseen[POD.name], "ask someone who may read pods"
        return
    if not snapshot.expected() and not facts.cluster["spec"].get("hibernate"):
        yield Verdict.FAILED, "no StatefulSet asks for a broker", "see the checks of the operator and of conditions"
    for name in snapshot.expected():
        pod = snapshot.pods.get(name)
        if pod is None:
            set_name = name.rpartition("-")[0]
            yield Verdict.FAILED, f"{name} is not there", f"kubectl describe statefulset {set_name} tells why"
        elif not pod.ready:
            why = pod.trouble or ("it is being deleted" if pod.deleting else "it runs and does not serve")
            yield Verdict.FAILED, f"{name} is not ready: {why}", f"kubectl describe pod {name}; kubectl logs {name}"


def _claims(facts: Facts) -> Iterator[_Told]:
    for name, claim in sorted(facts.snapshot.claims.items()):
        if claim.phase != "Bound":
            yield Verdict.FAILED, f"{name} is {claim.phase}", f"kubectl describe pvc {name} tells why"
        elif claim.deleting:
            yield Verdict.WARNING, f"{name} is deleted once its pod is gone", "stop no pod that shall keep its disk"


def _admin(facts: Facts) -> Iterator[_Told]:
    for name, why in sorted(facts.troubles.items()):
        way = "port-forward needs `create` of pods/portforward; otherwise kubectl logs of the pod"
        forbidden = "403" in why or "orbidden" in why
        yield Verdict.NOT_SEEN if forbidden else Verdict.FAILED, f"{name} does not answer: {why}", way
    for name, broker in _answers(facts):
        if broker.missing:
            yield Verdict.FAILED, f"{name} lacks {'; '.join(broker.missing)}", f"kubectl logs {name}"
    ids = facts.snapshot.cluster_ids()
    if len(ids) > 1:
        told = f"brokers belong to different clusters: {', '.join(sorted(ids))}"
        yield Verdict.FAILED, told, "find out which disks are the right ones; nothing is done until then"
    if [*_answers(facts)] and facts.snapshot.leader() is None:
        yield Verdict.FAILED, "no broker leads the metadata", "bring a majority of the voters back"


def _disks(facts: Facts) -> Iterator[_Told]:
    for name, broker in _answers(facts):
        used = 100 * (broker.bytes_total - broker.bytes_free) // broker.bytes_total if broker.bytes_total else 0
        if used >= _NEARLY_FULL_PERCENT:
            verdict = Verdict.FAILED if used >= DISK_PERCENT_MAX else Verdict.WARNING
            yield verdict, f"the disk of {name} is {used} % full", "let records go (retention), or add brokers"


def _lost(facts: Facts) -> Iterator[_Told]:
    snapshot, name = facts.snapshot, facts.cluster["metadata"]["name"]
    lost = snapshot.lost_disks()
    for member in snapshot.members():
        if member in lost or not member.alive:
            how = "came up on another disk" if member in lost else "is away"
            way = f"bring it back; if it never will be: kubectl walrus replace {name} {member.disk}"
            yield Verdict.FAILED, f"{member.name} {how}, and disk {member.disk} still votes and counts", way
    if snapshot.lost_cluster():
        yield Verdict.FAILED, "every broker is on a new disk", "bring the volumes back, or make the cluster again"
    for pod, departure in snapshot.departures().items():
        claim = snapshot.cluster.names.claim(pod)
        kept = claim in snapshot.claims and snapshot.claims[claim].uid == departure.claim
        if kept and is_member(departure.disk, snapshot) is False:
            told = f"{claim} bears disk {departure.disk}, which left the cluster: no broker is added over it"
            yield Verdict.WARNING, told, f"kubectl delete pvc {claim}, if nothing of it is needed"


def _copies(facts: Facts) -> Iterator[_Told]:
    leading = facts.snapshot.leader()
    if leading is not None and leading[1].under_replicated:
        told = f"{leading[1].under_replicated} segments lack copies on brokers that are alive"
        yield Verdict.FAILED, told, "bring back who is away; copies are made by themselves then"


def _conditions(facts: Facts) -> Iterator[_Told]:
    status = facts.cluster.get("status") or {}
    for one in status.get("conditions", ()):
        if one["type"] in ("Quiesced", "Progressing") or is_as_wished(one):
            continue
        is_failure = one["status"] == "False" and one["type"] not in _WARNINGS
        verdict = Verdict.FAILED if is_failure else Verdict.WARNING
        way = f"kubectl walrus explain {facts.cluster['metadata']['name']} says who can lift it"
        yield verdict, f"{one['type']} is {one['status']} ({one['reason']}): {one['message']}", way
    gate = status.get("plan", {}).get("blockedBy")
    if gate:
        verdict = Verdict.FAILED if gate in map(str, REFUSED) else Verdict.WARNING
        yield verdict, f"held up by {gate}: {status['plan'].get('detail', '')}", lifted_by(gate)


def _orders(facts: Facts) -> Iterator[_Told]:
    name = facts.cluster["metadata"]["name"]
    for annotation in (PAUSE, PAUSE_UNTIL, DRAIN):
        if annotation in facts.cluster["metadata"].get("annotations", {}):
            told = f"{annotation} stands: {ordered(facts.cluster, annotation)[:100] or 'no reason given'}"
            yield Verdict.WARNING, told, f"kubectl annotate wc {name} {annotation}- takes it away"


def _clocks(facts: Facts) -> Iterator[_Told]:
    if abs(facts.ahead_s) > _CLOCK_S:
        side = "ahead of" if facts.ahead_s > 0 else "behind"
        told = f"this machine is {abs(facts.ahead_s):.0f} s {side} Kubernetes"
        yield Verdict.WARNING, told, "set the clock by NTP, before times are read or written here"
    renewed = _time(facts.lease.get("spec", {}).get("renewTime")) if isinstance(facts.lease, dict) else None
    if renewed is not None and (renewed - facts.now).total_seconds() > _CLOCK_S:
        told = f"the operator is {(renewed - facts.now).total_seconds():.0f} s ahead of Kubernetes"
        yield Verdict.WARNING, told, "set the clock of its node by NTP: windows and pauses go by it"


def _versions(facts: Facts) -> Iterator[_Told]:
    brokers = {broker.version for _, broker in _answers(facts)}
    if len(brokers) > 1:
        told = f"brokers of several versions: {', '.join(sorted(brokers))}"
        yield Verdict.WARNING, told, "a roll ends that; see conditions for what holds it up"
    for pod, image in sorted(facts.images.items()):
        tag = image.partition("@")[0].rpartition(":")[2]
        if tag not in (facts.own_version, "latest") and "/" not in tag:
            told = f"{pod} is of {tag}, and this command of {facts.own_version}"
            yield Verdict.WARNING, told, "install the command of the operator's release, which knows its gates"


_CHECKS = {
    "definitions": _definitions,
    "operator": _operator,
    "looked after": _looked_at,
    "rights": _rights,
    "pods": _pods,
    "claims": _claims,
    "brokers": _admin,
    "disks": _disks,
    "members": _lost,
    "copies": _copies,
    "conditions": _conditions,
    "orders": _orders,
    "clocks": _clocks,
    "versions": _versions,
}
_FINE = {
    "definitions": "those of this release",
    "operator": "it renews its lease, and its pods are ready",
    "looked after": "the status is of the present spec",
    "rights": "the operator has those of this release",
    "pods": "all that there shall be are ready",
    "claims": "all have their volumes",
    "brokers": "all that run answer, are of one cluster, and one leads the metadata",
    "disks": f"all that were told are less than {_NEARLY_FULL_PERCENT} % full",
    "members": "every disk of the cluster is there, and none that left is in the way",
    "copies": "no segment lacks one",
    "conditions": "all are as they shall be, and nothing is held up",
    "orders": "none stands that keeps something from happening",
    "clocks": f"within {_CLOCK_S:.0f} s of each other, as far as they can be seen",
    "versions": "brokers are of one, and the operator is of this command's",
}


def _answers(facts: Facts) -> Iterable[tuple[str, Broker]]:
    return ((name, broker) for name, broker in sorted(facts.snapshot.brokers.items()) if broker is not None)


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
