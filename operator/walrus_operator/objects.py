"""Objects of Kubernetes as the operator sees them: kinds it knows, references, and a manifest's outer parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from walrus_operator.api import topic
from walrus_operator.api.cluster import API_VERSION, KIND, PLURAL

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of objects and where the API server keeps it."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; the core group is called ""."""
        return self.api_version.rpartition("/")[0]


CLUSTER = Kind(KIND, API_VERSION, PLURAL)
TOPIC = Kind(topic.KIND, API_VERSION, topic.PLURAL)
STATEFUL_SET = Kind("StatefulSet", "apps/v1", "statefulsets")
CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
SERVICE = Kind("Service", "v1", "services")
SERVICE_ACCOUNT = Kind("ServiceAccount", "v1", "serviceaccounts")
BUDGET = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
SECRET = Kind("Secret", "v1", "secrets")
POD = Kind("Pod", "v1", "pods")
CLAIM = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
NODE = Kind("Node", "v1", "nodes", namespaced=False)
VOLUME = Kind("PersistentVolume", "v1", "persistentvolumes", namespaced=False)
DEFINITION = Kind("CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
EVENT = Kind("Event", "v1", "events")
LEASE = Kind("Lease", "coordination.k8s.io/v1", "leases")

KINDS = {
    kind.name: kind
    for kind in (
        CLUSTER,
        TOPIC,
        STATEFUL_SET,
        CONFIG_MAP,
        SERVICE,
        SERVICE_ACCOUNT,
        BUDGET,
        NETWORK_POLICY,
        SECRET,
        POD,
        CLAIM,
        NODE,
        VOLUME,
        DEFINITION,
        EVENT,
        LEASE,
    )
}


@dataclass(frozen=True, order=True)
class Ref:
    """Which object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, order=True)
class Key:
    """Which WalrusCluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, order=True)
class TopicsKey(Key):
    """The topics of which WalrusCluster: they are looked at together, whether there is that cluster or not."""

    def __str__(self) -> str:
        return f"topics of {super().__str__()}"


def ref_of(manifest: Manifest) -> Ref:
    """Which object a manifest describes."""
    metadata = manifest["metadata"]
    return Ref(manifest["kind"], metadata["namespace"], metadata["name"])


def uid_of(manifest: Manifest) -> str:
    """The identity that the API server gave the object; a later one of the same name has another."""
    return str(manifest["metadata"].get("uid", ""))


def owned_by(manifest: Manifest, uid: str) -> bool:
    """Whether the object belongs to the owner of this uid."""
    return any(reference.get("uid") == uid for reference in manifest["metadata"].get("ownerReferences", ()))
