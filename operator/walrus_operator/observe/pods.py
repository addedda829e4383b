"""Pods of brokers, as Kubernetes tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from walrus_operator.desired.names import ADVERTISED, LABEL_POOL, RESTARTED, REVISION, ROLL
from walrus_operator.desired.placing import is_held
from walrus_operator.desired.secret import is_mounted
from walrus_operator.objects import Manifest, uid_of

_NODE_GAVE_UP = "DeletionByTaintManager"
"""Why Kubernetes deleted a pod whose node did not answer for too long, in the condition `DisruptionTarget`.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""


@dataclass(frozen=True)
class Pod:
    """A broker's pod."""

    name: str
    uid: str
    pool: str
    revision: str
    """What it was made from."""
    ip: str | None
    node: str | None
    ready: bool
    running: bool
    deleting: bool
    restarts: int
    trouble: str | None
    """Why its container does not run, or did not before it was started again, in the words of Kubernetes."""
    served: bool = False
    """Whether it was ready since its container started last."""
    abandoned: bool = False
    """Whether Kubernetes deleted it because its node does not answer: it stays until the node is back, or given up."""
    shares_secret: bool = False
    """Whether it mounts the Secret that the brokers of a cluster share."""
    node_ip: str | None = None
    """The address of its node, as its kubelet told."""
    advertised: str = ""
    """What clients outside are told of its listeners."""
    orders: Mapping[str, str] = field(default_factory=dict)
    """The orders to restart that it was made after, by the annotations that bear them."""
    held: bool = False
    """Whether nobody said yet on which node it comes up, so that it is placed on none."""
    unready_since: datetime | None = None
    """Since when it is not ready: Kubernetes remembers that, whoever looks; None where it is ready, or nobody knows."""
    image: str = ""
    """What its broker runs."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Pod:
        """From the API server's object."""
        metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
        containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        brokers = status.get("containerStatuses", ())
        ready = conditions.get("Ready", {})
        return cls(
            name=metadata["name"],
            uid=uid_of(manifest),
            pool=metadata.get("labels", {}).get(LABEL_POOL, ""),
            revision=metadata.get("annotations", {}).get(REVISION, ""),
            ip=status.get("podIP"),
            node=spec.get("nodeName"),
            ready=ready.get("status") == "True",
            served=ready.get("status") == "True" or ready.get("lastTransitionTime", "") > _started(brokers),
            running=any("running" in container.get("state", {}) for container in brokers),
            deleting="deletionTimestamp" in metadata,
            restarts=sum(container.get("restartCount", 0) for container in brokers),
            trouble=None if is_held(manifest) else _trouble(conditions, containers),
            held=is_held(manifest),
            abandoned=conditions.get("DisruptionTarget", {}).get("reason") == _NODE_GAVE_UP,
            shares_secret=is_mounted(manifest),
            node_ip=status.get("hostIP"),
            advertised=metadata.get("annotations", {}).get(ADVERTISED, ""),
            orders=orders_of(metadata),
            unready_since=_unready_since(ready, metadata.get("creationTimestamp", "")),
            image=next((str(one.get("image", "")) for one in spec.get("containers", ())), ""),
        )


def orders_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Orders to restart, as `kubectl rollout restart` writes them and as a WalrusCluster bears them, by annotation."""
    told = metadata.get("annotations", {})
    return {name: told[name] for name in (RESTARTED, ROLL) if told.get(name)}


def _unready_since(ready: Mapping[str, Any], made: str) -> datetime | None:
    if ready.get("status") == "True":
        return None
    try:
        return datetime.fromisoformat(ready.get("lastTransitionTime") or made)
    except ValueError:
        return None


def _started(containers: Iterable[Mapping[str, Any]]) -> str:
    """When the last of them started; later than anything where none runs."""
    return max((one["state"].get("running", {}).get("startedAt", "~") for one in containers), default="~")


def _trouble(conditions: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> str | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"[:300]
    for container in containers:
        state = container.get("state", {})
        waiting, last = state.get("waiting", {}), container.get("lastState", {}).get("terminated", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {_end(last) or waiting.get('message', '')}"[:300]
        # One that is killed again and again runs most of the time, and is not ready then.
        if "terminated" in state and state["terminated"].get("exitCode") != 0:
            return _end(state["terminated"])
        if last.get("reason") == "OOMKilled" and not container.get("ready", False):
            return _end(last)
    return None


def _end(ended: Mapping[str, Any]) -> str:
    """How a container ended, where that says more than that it is started again."""
    if ended.get("reason") == "OOMKilled":
        return "OOMKilled: it used more memory than resources.limits.memory of its pool allows"
    return f"{ended['reason']}, exit code {ended.get('exitCode')}" if "reason" in ended else ""
