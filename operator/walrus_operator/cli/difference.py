"""What the operator would do with another spec: its own planner, over what there is. Nothing is written: whether claims
can grow is asked by a dry run.

Brokers are asked by port-forward, as whether the disks that stay have room is in no status. Of one that cannot be asked
the status tells, so a step that depends on it may be held up in the end. The Secret that brokers share is not read: it
is taken for what it should be.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from pydantic import ValidationError

from walrus_operator.api.cluster import ClusterSpec, parse_spec
from walrus_operator.api.releases import Wire
from walrus_operator.cli.reached import ReachedBrokers
from walrus_operator.cli.user import UserApi
from walrus_operator.clock import now
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.desired.network import operator_namespace_of
from walrus_operator.kube.api import Missing
from walrus_operator.objects import CLUSTER, NETWORK_POLICY, POD, STATEFUL_SET, Key, Manifest, Ref
from walrus_operator.observe.brokers import BrokerError
from walrus_operator.observe.growth import stay_small
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.snapshot import Broker, Cluster, Config, Drain, Member, Replication, Snapshot
from walrus_operator.plan.actions import REFUSED, Plan
from walrus_operator.plan.planner import plan

DEFAULT_IMAGE = "walrus/walrus-node"


class ToldBrokers:
    """Brokers as the status of their cluster last told of them."""

    def __init__(self, status: Mapping[str, Any], pods: Mapping[str, str]) -> None:
        """*pods* are their names by address."""
        self._status = status
        self._pods = pods

    async def look(self, host: str) -> Broker:
        """What was told about the broker. Raises `BrokerError` where nothing was."""
        status = self._status
        row: Mapping[str, Any] = next(
            (one for one in status.get("brokers", ()) if one["pod"] == self._pods.get(host)), {}
        )
        if row.get("state") != "Serving" or "uuid" not in row:
            raise BrokerError(f"the status does not tell that {self._pods.get(host, host)} serves")
        replication = status.get("replication", {})
        members = tuple(
            Member(one["uuid"], one["name"], one["state"] in ("Alive", "Draining"), one["state"] == "Draining")
            for one in status.get("members", ())
        )
        return Broker(
            cluster_id=str(status.get("clusterId", "")),
            node_id=row.get("id", 0),
            disk=row["uuid"],
            version=row.get("version", ""),
            missing=(),
            role=row.get("role", ""),
            term=status.get("term", 0),
            segments_led=row.get("segmentsLed", 0),
            under_replicated=status.get("underReplicated", 0),
            replication=Replication(replication["factor"], replication["writeQuorum"]) if replication else None,
            spare_brokers=replication.get("spareBrokers"),
            config_version=status.get("config", {}).get("version", 0),
            backend_asked=row.get("backend", ""),
            backend_in_use=row.get("backend", ""),
            backend_reason="",
            synced_writes="",
            cached_reason="",
            bytes_free=1,
            bytes_total=1,
            members=members,
            copies_needed=replication.get("copiesNeeded", 0),
            level_known=row.get("levelKnown", 0),
            wire=Wire.parse(row["wireVersions"]) if "wireVersions" in row else None,
        )


class AskedBrokers:
    """Brokers as they tell of themselves, or else as the status does."""

    def __init__(self, reached: ReachedBrokers, told: ToldBrokers) -> None:
        self._reached = reached
        self._told = told

    async def look(self, host: str) -> Broker:
        """What is known about the broker. Raises `BrokerError` where nothing is."""
        try:
            return await self._reached.look(host)
        except BrokerError:
            return await self._told.look(host)

    async def drain(self, host: str, disk: str) -> Drain:
        """How far the broker of this disk is with handing over. Raises `BrokerError`."""
        return await self._reached.drain(host, disk)

    async def config(self, host: str) -> Config:
        """The cluster's configuration. Raises `BrokerError`."""
        return await self._reached.config(host)


@dataclass(frozen=True)
class Seen:
    """What there is of a cluster."""

    snapshot: Snapshot
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Why brokers could not be asked, by pod."""


async def look(kube: UserApi, namespace: str, wanted: Manifest) -> Seen:
    """What there is of the cluster that a manifest is about; nothing but the manifest where it is not there."""
    name = wanted["metadata"]["name"]
    found = await kube.get(Ref(CLUSTER.name, namespace, name))
    if found is None:
        metadata = {"name": name, "namespace": namespace, "uid": "", "generation": 1}
        return Seen(Snapshot(Cluster.parse({**wanted, "metadata": {**wanted["metadata"], **metadata}}), {}))
    pods = await kube.list(POD, namespace, f"{LABEL_CLUSTER}={name}")
    hosts = {one.get("status", {}).get("podIP", ""): one["metadata"]["name"] for one in pods}
    reached = ReachedBrokers(kube, namespace, hosts)
    brokers = AskedBrokers(reached, ToldBrokers(found.get("status") or {}, hosts))
    seen = await Observer(kube, brokers, now).look(Key(namespace, name))  # type: ignore[arg-type] # it only reads
    if seen is None:
        raise Missing(f"{CLUSTER.name} {name} was deleted meanwhile")
    try:
        spec = parse_spec(dict(wanted.get("spec") or {}))
    except ValidationError:
        return Seen(seen, reached.troubles)
    return Seen(replace(seen, stays_small=await stay_small(kube, seen, spec)), reached.troubles)


def difference(look: Seen, wanted: Mapping[str, Any]) -> list[str]:
    """How the specs differ, and what the operator would do: lines. Pure."""
    seen, image = look.snapshot, _image(look.snapshot)
    try:
        spec = parse_spec(dict(wanted))
    except ValidationError as error:
        problems = (f"spec.{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
        return [f"Refused (Invalid): {problem}" for problem in problems]
    lines = list(_compared(seen, spec))
    # Defaults that the API server fills in are no change: the spec stays as it is written there.
    changed = replace(seen, cluster=replace(seen.cluster, spec=_plain(spec))) if lines else seen
    todo = plan(spec, changed, image, operator_namespace=_operator_namespace(seen))
    unasked = (f"Not asked, and taken as the status tells: {pod} ({why})" for pod, why in sorted(look.troubles.items()))
    return [*lines, *_planned(todo), *unasked]


def _operator_namespace(seen: Snapshot) -> str:
    """Where the operator runs, as far as the cluster's objects tell."""
    cluster = seen.cluster
    return operator_namespace_of(
        seen.objects.get(Ref(NETWORK_POLICY.name, cluster.key.namespace, cluster.names.policy))
    )


def _compared(seen: Snapshot, spec: ClusterSpec) -> Iterator[str]:
    if not seen.cluster.uid:
        yield f"{CLUSTER.name} {seen.cluster.key.name} is not there: it would be made."
        return
    present, wanted = (yaml.safe_dump(one, sort_keys=False).splitlines() for one in (_present(seen), _plain(spec)))
    yield from difflib.unified_diff(present, wanted, "now", "then", lineterm="")


def _present(seen: Snapshot) -> dict[str, Any]:
    """The spec that is there, with defaults; as it is written where this release cannot read it."""
    try:
        return _plain(parse_spec(dict(seen.cluster.spec)))
    except ValidationError:
        return dict(seen.cluster.spec)


def _planned(todo: Plan) -> Iterator[str]:
    refused = [wait for wait in todo.waits if wait.gate in REFUSED]
    for wait in refused:
        yield f"Refused ({wait.gate}): {wait.detail}"
    if refused:
        yield "Nothing of it would be begun: the last accepted spec stays in force."
        return
    for action in (*todo.actions, *todo.settings):
        yield f"At once: {action}"
    for step in todo.steps:
        yield f"Then, one in each pass: {step}"
    if todo.outdated:
        yield f"Pods that restart, one after the other: {', '.join(todo.outdated)}"
    for wait in todo.waits:
        yield f"Held up ({wait.gate}): {wait.detail}"
    if todo.is_idle:
        yield "Nothing would be done."


def _plain(spec: ClusterSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _image(seen: Snapshot) -> str:
    """The image that the brokers have now: the operator's own default is known to it alone."""
    for ref, found in seen.objects.items():
        if ref.kind == STATEFUL_SET.name:
            return str(found["spec"]["template"]["spec"]["containers"][0]["image"])
    return DEFAULT_IMAGE
