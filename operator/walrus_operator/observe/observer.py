"""Looks at a cluster. Nothing is cached: a list costs little, and a cache that missed a deletion costs a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import ValidationError

from walrus_operator.api.cluster import parse_spec
from walrus_operator.clock import Now
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.api import Denied, KubeApi
from walrus_operator.objects import (
    BUDGET,
    CLAIM,
    CLUSTER,
    CONFIG_MAP,
    NETWORK_POLICY,
    NODE,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    VOLUME,
    Key,
    Kind,
    Manifest,
    Ref,
    owned_by,
    uid_of,
)
from walrus_operator.observe.brokers import BrokerError, Brokers, look_all
from walrus_operator.observe.claims import Claim
from walrus_operator.observe.growth import stay_small
from walrus_operator.observe.machines import Machine, Volume
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import (
    Broker,
    Cluster,
    Config,
    Drain,
    SharedSecret,
    Snapshot,
    StaysSmall,
    addresses_of,
    arranged,
)

_CHILDREN = (STATEFUL_SET, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, BUDGET, NETWORK_POLICY)


class Observer:
    """Looks at clusters, one at a time or many at once."""

    def __init__(self, kube: KubeApi, brokers: Brokers, now: Now) -> None:
        self._kube = kube
        self._brokers = brokers
        self._now = now

    async def look(self, key: Key) -> Snapshot | None:
        """The cluster as it is now, or None where there is none. Raises `KubeError`.

        A kind of objects that may not be read is named, and the rest is looked at.
        """
        unseen: dict[str, str] = {}
        found = await self._kube.get(Ref(CLUSTER.name, key.namespace, key.name))
        if found is None:
            return None
        cluster = Cluster.parse(found)
        children, pods, claims = await asyncio.gather(
            self._children(key, unseen), self._list(POD, key, unseen), self._list_claims(cluster, unseen)
        )
        objects = arranged(children)
        made = _made_by(pods, Snapshot(cluster, objects))
        hosts = _hosts(made)
        brokers = await look_all(self._brokers, hosts)
        seen = Snapshot(
            cluster=cluster,
            objects=objects,
            pods={pod.name: pod for pod in made},
            claims=claims,
            brokers=brokers,
            config=await self._config(hosts, brokers),
            orphans={pod.name: pod for pod in map(Pod.parse, filter(_is_orphan, pods))},
            nodes=await self._nodes(made, children, unseen),
            at=self._now(),
            unseen=unseen,
        )
        seen = await self._where(seen, unseen)
        seen = replace(seen, drains=await self._drains(seen), stays_small=await self._stay_small(seen))
        return replace(seen, secret=await self._secret(cluster, unseen)) if seen.shares_secret() else seen

    async def ask_brokers(self, before: Snapshot) -> Snapshot:
        """The cluster as it was seen before, with what its brokers tell now. Nothing is asked of Kubernetes."""
        hosts = _hosts(before.pods.values())
        brokers = await look_all(self._brokers, hosts)
        versions = {broker.config_version if broker is not None else None for broker in brokers.values()}
        # What a configuration says differs only where its version does.
        is_known = before.config is not None and versions == {before.config.version}
        config = before.config if is_known else await self._config(hosts, brokers)
        return replace(before, brokers=brokers, config=config, at=self._now())

    async def _children(self, key: Key, unseen: dict[str, str]) -> list[Manifest]:
        lists = await asyncio.gather(*(self._list(kind, key, unseen) for kind in _CHILDREN))
        return [manifest for manifests in lists for manifest in manifests]

    async def _list(self, kind: Kind, key: Key, unseen: dict[str, str]) -> list[Manifest]:
        try:
            return await self._kube.list(kind, key.namespace, _selector(key))
        except Denied as error:
            unseen[kind.name] = str(error)
            return []

    async def _list_claims(self, cluster: Cluster, unseen: dict[str, str]) -> dict[str, Claim]:
        listed = await self._list(CLAIM, cluster.key, unseen)
        parsed = {found["metadata"]["name"]: Claim.parse(found, cluster.names) for found in listed}
        return {name: claim for name, claim in parsed.items() if claim is not None}

    async def _nodes(
        self, pods: list[Pod], children: list[Manifest], unseen: dict[str, str]
    ) -> dict[str, dict[str, str]]:
        if not any(found["kind"] == SERVICE.name and found["spec"].get("type") == "NodePort" for found in children):
            return {}
        names = sorted({pod.node for pod in pods if pod.node is not None})
        try:
            found = await asyncio.gather(*(self._kube.get(Ref(NODE.name, "", name)) for name in names))
        except Denied as error:
            unseen[NODE.name] = str(error)
            return {}
        return {name: addresses_of(node) for name, node in zip(names, found, strict=True) if node is not None}

    async def _where(self, seen: Snapshot, unseen: dict[str, str]) -> Snapshot:
        """With the volumes of brokers that are away, and all nodes: where none is away, neither is looked for.

        Nodes are looked for, too, where a pod has none and brokers must be spread over so many zones.
        """
        names = seen.cluster.names
        claims = {pod.name: seen.claims.get(names.claim(pod.name)) for pod in seen.away()}
        named = {pod: claim.volume for pod, claim in claims.items() if claim is not None and claim.volume}
        noted = {pod.name: seen.disks().get(pod.name) for pod in seen.away() if pod.name not in named}
        folders = {pod: Volume.folder(disk.node) for pod, disk in noted.items() if disk is not None and disk.node}
        topology = seen.cluster.spec.get("topology") or {}
        is_homeless = topology.get("required") is True and any(pod.node is None for pod in seen.pods.values())
        if not named and not folders and not is_homeless:
            return seen
        machines, volumes = await asyncio.gather(
            self._machines(unseen), asyncio.gather(*(self._volume(name, unseen) for name in named.values()))
        )
        found = {pod: volume for pod, volume in zip(named, volumes, strict=True) if volume is not None}
        return replace(seen, volumes=found | folders, machines=machines)

    async def _machines(self, unseen: dict[str, str]) -> tuple[Machine, ...]:
        try:
            return tuple(map(Machine.parse, await self._kube.list(NODE, None)))
        except Denied as error:
            unseen[NODE.name] = str(error)
            return ()

    async def _volume(self, name: str, unseen: dict[str, str]) -> Volume | None:
        try:
            found = await self._kube.get(Ref(VOLUME.name, "", name))
        except Denied as error:
            unseen[VOLUME.name] = str(error)
            return None
        return Volume.parse(found) if found is not None else None

    async def _stay_small(self, seen: Snapshot) -> Mapping[str, StaysSmall]:
        try:
            spec = parse_spec(dict(seen.cluster.spec))
        except ValidationError:
            return {}
        return await stay_small(self._kube, seen, spec)

    async def _secret(self, cluster: Cluster, unseen: dict[str, str]) -> SharedSecret | None:
        try:
            found = await self._kube.get(Ref(SECRET.name, cluster.key.namespace, cluster.names.secret))
        except Denied as error:
            unseen[SECRET.name] = str(error)
            return None
        return SharedSecret.parse(found, cluster) if found is not None else None

    async def _drains(self, seen: Snapshot) -> dict[str, Drain]:
        """How far those are that go and are still members: asked of the metadata leader, which counts for everyone."""
        leading = seen.leader()
        if leading is None:
            return {}
        name, broker = leading
        draining = {member.disk for member in broker.members if member.draining}
        told = {}
        for departure in seen.departures().values():
            if departure.disk in draining:
                try:
                    told[departure.disk] = await self._brokers.drain(seen.pods[name].ip or "", departure.disk)
                except BrokerError:
                    break
        return told

    async def _config(self, hosts: dict[str, str], brokers: dict[str, Broker | None]) -> Config | None:
        """Asked of the broker that knows the latest, and is part of the cluster."""
        told = [(broker.config_version, name) for name, broker in brokers.items() if broker and broker.cluster_id]
        for _, name in sorted(told, reverse=True):
            try:
                return await self._brokers.config(hosts[name])
            except BrokerError:
                continue
        return None


def _hosts(pods: Iterable[Pod]) -> dict[str, str]:
    """The addresses of those that can be asked."""
    return {pod.name: pod.ip for pod in pods if pod.ip is not None and pod.running and not pod.deleting}


def _made_by(pods: list[Manifest], seen: Snapshot) -> list[Pod]:
    """Pods of the cluster's own StatefulSets. Anyone may put its label on another one, which says nothing about it.

    Those of a StatefulSet that is made anew have no owner until the next one is there, and go by their names.
    """
    uids = {uid_of(found) for found in seen.sets().values()}
    names, remade = seen.cluster.names, seen.remade()
    left = {names.pod(pool, ordinal) for pool, found in remade.items() for ordinal in range(found["spec"]["replicas"])}
    return [
        Pod.parse(found)
        for found in pods
        if any(owned_by(found, uid) for uid in uids) or (found["metadata"]["name"] in left and _is_orphan(found))
    ]


def _is_orphan(pod: Manifest) -> bool:
    return not pod["metadata"].get("ownerReferences") and "deletionTimestamp" not in pod["metadata"]


def _selector(key: Key) -> str:
    return f"{LABEL_CLUSTER}={key.name}"
