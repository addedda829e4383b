"""Names, ports and labels: the contract between the operator, the charts and everyone who looks into a namespace."""

from __future__ import annotations

from dataclasses import dataclass

from walrus_operator.api.cluster import GROUP

MANAGER = "walrus-operator"

LABEL_CLUSTER = f"{GROUP}/cluster"
LABEL_POOL = f"{GROUP}/pool"

HASH = f"{GROUP}/hash"
"""Annotation: the hash of the manifest that was applied."""
RENDERED_FROM = f"{GROUP}/rendered-from"
"""Annotation of a StatefulSet: the part of the spec that its pods were made from, as JSON."""
REVISION = f"{GROUP}/revision"
"""Annotation of a pod: which `rendered-from` it was made from."""
FINALIZER = f"{GROUP}/claims"
"""Finalizer of a WalrusCluster with `deletionPolicy: Delete`: its claims go before it does."""
TOPIC_FINALIZER = f"{GROUP}/topic"
"""Finalizer of a WalrusTopic with `deletionPolicy: Delete`: the topic goes before it does."""
UNTOLD = f"{GROUP}/untold"
"""Annotation of the bootstrap ConfigMap: the uid of the founder's pod that started before it, and must start again."""
REPLICAS = f"{GROUP}/replicas"
"""Annotation of a StatefulSet: how many brokers the operator asked for last, whoever scaled it since."""
ADOPT = f"{GROUP}/adopt"
"""Annotation of a WalrusCluster: take over what bears its labels and lost its owner."""
PAUSE = f"{GROUP}/pause"
"""Annotation of a WalrusCluster: the reason why the operator shall only look."""
PAUSE_UNTIL = f"{GROUP}/pause-until"
"""Annotation of a WalrusCluster: until when the operator shall only look, as RFC 3339."""
REPLACE = f"{GROUP}/replace"
"""Annotation of a WalrusCluster: the identity of a disk that will never come back, and is to be replaced."""
ROLL = f"{GROUP}/roll"
"""Annotation of a WalrusCluster, of templates and of pods: an order that all brokers restart; any other text is another
order."""
DRAIN = f"{GROUP}/drain"
"""Annotation of a WalrusCluster: the identity of a disk whose broker hands over what it has, and stays."""
FINALIZE = f"{GROUP}/finalize"
"""Annotation of a WalrusCluster: the level of commands of the metadata that it may use, which ends the way back."""
RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a StatefulSet's template and of its pods: when someone asked for a restart, as kubectl writes it."""
HIBERNATED = f"{GROUP}/hibernated"
"""Annotation of a StatefulSet whose brokers are all stopped: how many there were, and come back."""

PLACE = f"{GROUP}/place"
"""Scheduling gate of pods on folders of nodes: they are held until the operator says on which node they come up."""
ADVERTISED = f"{GROUP}/advertised"
"""Annotation of a pod: what clients of its listeners are told, each a line `PROTOCOL/NAME=HOST:PORT`."""

ACCEPTED_SPEC = "spec"
"""Key of the ConfigMap with the last spec that was accepted."""
SETTINGS = "settings"
"""Key of the same ConfigMap with the names of settings that brokers have from `config.dynamic`, with commas between."""
CLUSTER_ID = "clusterId"
"""Key of the same ConfigMap with the identity of the cluster, once it is founded."""
POD_NAME = "statefulset.kubernetes.io/pod-name"
"""Label that Kubernetes puts on every pod that a StatefulSet made."""

RAFT_PORT = 6000
PEER_PORT = 6001
HTTP_PORT = 8088
ADMIN_PORT = 9091

DATA_DIR = "/var/lib/walrus"
ADVERTISED_DIR = "/run/walrus/advertised"
SECRET_DIR = "/run/secrets/walrus"  # noqa: S105 - a place
SECRET_KEY = "secret"  # noqa: S105 - a name
"""Key of the Secret that the brokers share, and the name of its file below `SECRET_DIR`."""
USER = 10001
RING_PROFILE = "walrus/io-uring.json"
"""Seccomp profile of pools with the backend `io_uring`, below the kubelet's `seccomp` folder; the charts ship it."""


@dataclass(frozen=True)
class Names:
    """The names of everything that belongs to one cluster."""

    namespace: str
    cluster: str

    @property
    def brokers(self) -> str:
        """The headless Service."""
        return f"{self.cluster}-brokers"

    @property
    def client(self) -> str:
        """The Service for clients inside Kubernetes."""
        return self.cluster

    @property
    def config(self) -> str:
        """The ConfigMap with what all brokers share."""
        return f"{self.cluster}-config"

    @property
    def bootstrap(self) -> str:
        """The ConfigMap that lets one broker found the cluster; it is there only until the cluster is."""
        return f"{self.cluster}-bootstrap"

    @property
    def accepted(self) -> str:
        """The ConfigMap with the last spec that was accepted."""
        return f"{self.cluster}-accepted"

    @property
    def departures(self) -> str:
        """The ConfigMap with the brokers that go, and the disks that left with their claims kept."""
        return f"{self.cluster}-departures"

    @property
    def disks(self) -> str:
        """The ConfigMap with the disk of each broker."""
        return f"{self.cluster}-disks"

    @property
    def remade(self) -> str:
        """The ConfigMap with the StatefulSets that are made anew, while they are not there."""
        return f"{self.cluster}-remade"

    @property
    def secret(self) -> str:
        """The Secret that the brokers share."""
        return f"{self.cluster}-shared-secret"

    @property
    def account(self) -> str:
        """The ServiceAccount of the brokers."""
        return self.cluster

    @property
    def budget(self) -> str:
        """The PodDisruptionBudget."""
        return self.cluster

    @property
    def policy(self) -> str:
        """The NetworkPolicy."""
        return self.cluster

    def pool(self, pool: str) -> str:
        """The StatefulSet of a pool."""
        return f"{self.cluster}-{pool}"

    def pod(self, pool: str, ordinal: int) -> str:
        """A broker's pod."""
        return f"{self.pool(pool)}-{ordinal}"

    def place(self, pod: str) -> tuple[str, int]:
        """The pool of a broker's pod, and its ordinal."""
        pool, _, ordinal = pod.removeprefix(f"{self.cluster}-").rpartition("-")
        return pool, int(ordinal) if ordinal.isdecimal() else -1

    def claim(self, pod: str) -> str:
        """The claim of a broker's pod; it bears its disk."""
        return f"data-{pod}"

    def listener(self, listener: str) -> str:
        """The Service of a listener for clients outside Kubernetes."""
        return f"{self.cluster}-{listener}"

    def single(self, pod: str, listener: str) -> str:
        """The Service of a broker for clients outside Kubernetes; no other Service is called so."""
        return f"{pod}-{listener}"

    def labels(self, pool: str | None = None) -> dict[str, str]:
        """Labels of an object; with a pool, those of its pods too."""
        return {
            "app.kubernetes.io/name": "walrus",
            "app.kubernetes.io/component": "broker",
            "app.kubernetes.io/managed-by": MANAGER,
            **self.selector(pool),
        }

    def selector(self, pool: str | None = None) -> dict[str, str]:
        """What selects the cluster's pods; with a pool, those of the pool. Never changes."""
        return {
            "app.kubernetes.io/instance": self.cluster,
            LABEL_CLUSTER: self.cluster,
            **({LABEL_POOL: pool} if pool else {}),
        }
