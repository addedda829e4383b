"""A pool as a StatefulSet. Its pod template depends neither on the number of brokers nor on dynamic settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from walrus_operator.api.cluster import Backend, ClusterSpec, Pool, Spread, Storage
from walrus_operator.api.config import hand_over_ms
from walrus_operator.api.pods import PodSecurity
from walrus_operator.desired import listeners
from walrus_operator.desired import names as n
from walrus_operator.desired.config import fsync_flag
from walrus_operator.desired.listeners import listener_inputs
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.desired.secret import mount, variable, volume
from walrus_operator.desired.template import carried_over
from walrus_operator.objects import STATEFUL_SET, Manifest

_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"
_GRACE_S = 30
_CLOSING_S = 20
"""What a broker has after it has handed over: several times what it takes to close."""


@dataclass(frozen=True)
class PodInputs:
    """The part of the spec that a pool's pods are made from; another one needs another pod.

    Pods restart for what users change, never because another release of the operator is at work. So a field that is
    added here has a default, which stands for what pods were before it and is not written down; and what another
    release has written down besides is carried over.
    """

    image: str
    backend: str
    fsync: str
    storage: dict[str, Any]
    resources: dict[str, Any]
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]
    image_pull_secrets: list[str] = field(default_factory=list)
    secret: str = ""
    """The Secret that the brokers share; brokers of a cluster that is older than it have none."""
    listeners: list[dict[str, Any]] = field(default_factory=list)
    """Listeners of clients, without what every broker has anyway."""
    affinity: dict[str, Any] = field(default_factory=dict)
    priority_class: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: list[dict[str, Any]] = field(default_factory=list)
    """Variables of users, by name."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of `walrus-node` for which the spec has no field of its own."""
    pod_security: str = str(PodSecurity.OPERATOR)
    spread: str = str(Spread.ZONE)
    domains_min: int = 0
    """Zones, or nodes, over which brokers must be spread; 0: as far as there are some."""
    zone: str = ""
    """What brokers tell as their zone; "": that of their node."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """What a newer operator made them from besides."""

    def text(self) -> str:
        """The inputs as the text of an annotation."""
        told = {one.name: getattr(self, one.name) for one in self._known() if getattr(self, one.name) != _default(one)}
        return json.dumps({**self.others, **told}, sort_keys=True, separators=(",", ":"))

    def revision(self) -> str:
        """What tells pods that were made from other inputs; a new operator that makes other pods of them does not."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    @classmethod
    def parse(cls, text: str) -> PodInputs:
        """From an annotation, whichever release has written it. Raises `ValueError`, `TypeError`."""
        told = json.loads(text)
        if not isinstance(told, dict):
            raise TypeError(f"{text!r} is no object")
        names = {one.name for one in cls._known()}
        others = {name: value for name, value in told.items() if name not in names}
        made = cls(**{name: value for name, value in told.items() if name in names}, others=others)
        Storage.model_validate(made.storage)
        return made

    @classmethod
    def _known(cls) -> list[Field[Any]]:
        return [one for one in fields(cls) if one.name != "others"]

    def differences(self, other: PodInputs) -> list[str]:
        """What `other` would change, for people."""
        changes = []
        for one in self._known():
            was, would_be = getattr(self, one.name), getattr(other, one.name)
            if was != would_be:
                changes.append(f"{one.name}: {_short(was)} -> {_short(would_be)}")
        return changes


@dataclass(frozen=True)
class Former:
    """Pods as they are made now, and what from."""

    inputs: PodInputs
    template: Manifest


def _default(one: Field[Any]) -> Any:
    """What is not written down; a field of the first release has none."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def pod_inputs(spec: ClusterSpec, pool: Pool, image: str, secret: str) -> PodInputs:
    """What the pods of a pool are made from; `secret` is the Secret that the brokers share, or ""."""
    return PodInputs(
        image=image,
        backend=str(pool.backend),
        fsync=fsync_flag(spec.fsync),
        storage=_storage(pool.storage),
        resources=_plain(pool.resources) if pool.resources else {},
        node_selector=dict(pool.node_selector or {}),
        tolerations=[_plain(toleration) for toleration in pool.tolerations or ()],
        image_pull_secrets=[one.name for one in spec.image_pull_secrets or ()],
        secret=secret,
        listeners=listener_inputs(spec),
        affinity=_plain(pool.affinity) if pool.affinity else {},
        priority_class=pool.priority_class_name or "",
        labels=dict(pool.labels or {}),
        annotations=dict(pool.annotations or {}),
        env=sorted((_plain(variable) for variable in pool.env or ()), key=lambda one: str(one["name"])),
        options=spec.config.options,
        pod_security=str(spec.pod_security),
        spread=str(spec.topology.spread),
        domains_min=spec.replication.factor if spec.topology.required else 0,
        zone=pool.zone or "",
    )


def stateful_set(
    owner: Owner,
    pool: str,
    inputs: PodInputs,
    replicas: int,
    former: Former | None = None,
    size: str | None = None,
) -> Manifest:
    """The StatefulSet of a pool. A pod is replaced only when someone deletes it (`OnDelete`); all start together.

    `former` is there where a newer operator has made it, from more than is known here; that stays as it is. `size` is
    that of claims which grew since their pods were made: the inputs keep the one of before, so that no pod restarts.
    """
    storage = Storage.model_validate(inputs.storage)
    made = object_of(
        owner,
        STATEFUL_SET,
        owner.names.pool(pool),
        pool=pool,
        spec={
            "replicas": replicas,
            "serviceName": owner.names.brokers,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            # Kubernetes would remove claims as a StatefulSet said that has not followed its cluster yet.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": owner.names.selector(pool)},
            "template": _template(owner, pool, inputs, former),
            **_claims(owner, pool, storage, size),
        },
    )
    made["metadata"]["annotations"] = {n.RENDERED_FROM: inputs.text()}
    return made


def _template(owner: Owner, pool: str, inputs: PodInputs, former: Former | None) -> Manifest:
    now = _pod(owner, pool, inputs, Storage.model_validate(inputs.storage))
    if former is None:
        return now
    before = _pod(owner, pool, former.inputs, Storage.model_validate(former.inputs.storage))
    made: Manifest = carried_over(former.template, before=before, now=now)
    return made


def _pod(owner: Owner, pool: str, inputs: PodInputs, storage: Storage) -> Manifest:
    names = owner.names
    spec: Manifest = {
        "serviceAccountName": names.account,
        "automountServiceAccountToken": False,
        # Variables of Services would shadow those of the broker where a Service is called `walrus`.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _grace_s(inputs),
        "securityContext": {
            "runAsNonRoot": True,
            **_users(inputs),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": _spreads(names, inputs),
        "containers": [_broker(owner, inputs)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if inputs.secret:
        spec["volumes"].append(volume(inputs.secret))
    spec["volumes"] += listeners.volumes(inputs.listeners)
    if inputs.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in inputs.image_pull_secrets]
    if inputs.node_selector:
        spec["nodeSelector"] = inputs.node_selector
    if inputs.tolerations:
        spec["tolerations"] = inputs.tolerations
    if inputs.priority_class:
        spec["priorityClassName"] = inputs.priority_class
    if inputs.affinity:
        spec["affinity"] = inputs.affinity
    if storage.host_path is not None:
        path = f"{storage.host_path.path}/{names.namespace}/{names.cluster}/{pool}"
        spec["volumes"].append({"name": "data", "hostPath": {"path": path, "type": "DirectoryOrCreate"}})
        spec["initContainers"] = [_owner_of_folder(inputs)]
        spec["affinity"] = _one_per_host(owner, pool, inputs.affinity)
        spec["schedulingGates"] = [{"name": n.PLACE}]
    metadata = {
        "labels": {**inputs.labels, **names.labels(pool)},
        "annotations": {**inputs.annotations, n.REVISION: inputs.revision()},
    }
    return {"metadata": metadata, "spec": spec}


def _grace_s(inputs: PodInputs) -> int:
    """A broker hands over what it leads for 10 s at most, or as long as it was told, and closes within 2 s."""
    told_ms = hand_over_ms(inputs.options)
    return _GRACE_S if told_ms is None else max(_GRACE_S, -(-told_ms // 1000) + _CLOSING_S)


def _users(inputs: PodInputs) -> Manifest:
    """As whom brokers run; nothing where the platform says it, and refuses whoever asks for a user."""
    if inputs.pod_security == PodSecurity.PLATFORM:
        return {}
    return {"runAsUser": n.USER, "runAsGroup": n.USER, "fsGroup": n.USER}


def _broker(owner: Owner, inputs: PodInputs) -> Manifest:
    names = owner.names
    env: list[Manifest] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "WALRUS_NODE_NAME", "value": "$(POD_NAME)"},
        {"name": "WALRUS_ADVERTISE_HOST", "value": f"$(POD_NAME).{names.brokers}.{names.namespace}.svc"},
        _told_to_founder(names, "WALRUS_BOOTSTRAP_NAME", "name"),
        _told_to_founder(names, "WALRUS_BOOTSTRAP_NODES", "nodes"),
        _told_to_founder(names, "WALRUS_REPLICATION_FACTOR", "factor"),
        _told_to_founder(names, "WALRUS_WRITE_QUORUM", "writeQuorum"),
        {"name": "WALRUS_BACKEND", "value": inputs.backend},
        {"name": "WALRUS_FSYNC", "value": inputs.fsync},
        # The operator says when, as it knows what the other brokers are to become.
        {"name": "WALRUS_FINALIZE", "value": "manual"},
        *_zone(inputs),
        *listeners.options(inputs.listeners),
    ]
    env += [
        {"name": f"WALRUS_{name.replace('-', '_').upper()}", "value": inputs.options[name]}
        for name in sorted(inputs.options)
    ]
    env += inputs.env
    mounts: list[Manifest] = [{"name": "data", "mountPath": n.DATA_DIR}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if inputs.secret:
        env.append(variable())
        mounts.append(mount())
    mounts += listeners.mounts(inputs.listeners)
    own = {"raft": n.RAFT_PORT, "peer": n.PEER_PORT, "admin": n.ADMIN_PORT, "http": n.HTTP_PORT}
    made: Manifest = {
        "name": "broker",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "envFrom": [{"configMapRef": {"name": names.config}}],
        "env": env,
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in {**own, **listeners.ports(inputs.listeners)}.items()
        ],
        # A large log takes its time to be read at the start: ten minutes, then it is restarted.
        "startupProbe": _probe("/healthz", period_s=2, failures=300),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6),
        "readinessProbe": _probe("/readyz", period_s=2, failures=2),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if inputs.backend == Backend.IO_URING:
        # The default profile of container runtimes forbids it. Where this one forbids it too, the broker says so and
        # does without.
        made["securityContext"]["seccompProfile"] = {"type": "Localhost", "localhostProfile": n.RING_PROFILE}
    if inputs.resources:
        made["resources"] = inputs.resources
    return made


def _told_to_founder(names: n.Names, variable: str, key: str) -> Manifest:
    """Only while a cluster is founded; afterwards it is in the metadata, and the variable is not there."""
    return {
        "name": variable,
        "valueFrom": {"configMapKeyRef": {"name": names.bootstrap, "key": key, "optional": True}},
    }


def _probe(path: str, *, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _spreads(names: n.Names, inputs: PodInputs) -> list[Manifest]:
    """Over zones, then over hosts; brokers that are told their zone are put there by their pool."""
    if inputs.spread == Spread.HOST:
        return [_spread(names, _HOST, inputs.domains_min)]
    zones = [] if inputs.zone else [_spread(names, _ZONE, inputs.domains_min)]
    return [*zones, _spread(names, _HOST)]


def _spread(names: n.Names, topology: str, domains_min: int = 0) -> Manifest:
    """As far as there are some: a cluster on one machine must start too, unless so many are asked for."""
    made = {"maxSkew": 1, "topologyKey": topology, "labelSelector": {"matchLabels": names.selector()}}
    if domains_min:
        return {**made, "whenUnsatisfiable": "DoNotSchedule", "minDomains": domains_min}
    return {**made, "whenUnsatisfiable": "ScheduleAnyway"}


def _zone(inputs: PodInputs) -> list[Manifest]:
    """Pods bear the zone of their node from Kubernetes 1.35 on; before, and where nodes have none, it is empty."""
    if inputs.spread == Spread.HOST:
        return []
    if inputs.zone:
        return [{"name": "WALRUS_ZONE", "value": inputs.zone}]
    label = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{_ZONE}']"}
    return [{"name": "WALRUS_ZONE", "valueFrom": {"fieldRef": label}}]


def _one_per_host(owner: Owner, pool: str, affinity: Manifest) -> Manifest:
    """The user's affinity, and one broker on each host: two would share a folder. Which is which, the folder knows."""
    term = {"labelSelector": {"matchLabels": owner.names.selector(pool)}, "topologyKey": _HOST}
    apart = affinity.get("podAntiAffinity", {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {**affinity, "podAntiAffinity": {**apart, required: [term, *apart.get(required, ())]}}


def _owner_of_folder(inputs: PodInputs) -> Manifest:
    """Kubernetes makes the folder for root and does not hand it over, as it does with volumes."""
    return {
        "name": "folder",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["chown", f"{n.USER}:{n.USER}", n.DATA_DIR],
        "securityContext": {
            "runAsNonRoot": False,
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": n.DATA_DIR}],
    }


def _claims(owner: Owner, pool: str, storage: Storage, size: str | None) -> Manifest:
    volume = storage.claim or storage.local
    if volume is None:
        return {}
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size or volume.size}},
    }
    if volume.storage_class_name is not None:
        spec["storageClassName"] = volume.storage_class_name
    template = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": owner.names.labels(pool)},
        "spec": spec,
    }
    return {"volumeClaimTemplates": [template]}


def _storage(storage: Storage) -> dict[str, Any]:
    """What pods have of it: how its claims grow is no matter of theirs."""
    told = _plain(storage)
    told.get("claim", {}).pop("autoGrow", None)
    return told


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
