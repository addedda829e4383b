"""The value sets that are rendered, linted and compared with golden files: one for each decision of a template."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One `helm install RELEASE charts/CHART -n NAMESPACE -f values`."""

    name: str
    chart: str
    release: str
    namespace: str
    values: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("operator-defaults", "walrus-operator", "walrus-operator", "walrus-system"),
    Case(
        "operator-namespaces",
        "walrus-operator",
        "walrus",
        "walrus-system",
        {
            "watch": {"namespaces": ["orders", "walrus-system", "trips"]},
            "rbac": {"aggregate": True, "clusterRole": False},
        },
    ),
    Case(
        "operator-everywhere",
        "walrus-operator",
        "streams",
        "operators",
        {
            "watch": {"all": True},
            "crds": {"install": False},
            "metrics": {"service": False},
            "monitoring": {"podMonitors": True, "rules": True, "dashboards": True, "labels": {"release": "prometheus"}},
            "replicas": 1,
        },
    ),
    Case(
        "operator-own-images",
        "walrus-operator",
        "walrus-operator",
        "walrus-system",
        {
            "image": {"repository": "registry.example/walrus-operator", "digest": "sha256:" + "0" * 64},
            "nodeImage": {"repository": "registry.example/walrus-node", "tag": "1.2.3"},
            "imagePullSecrets": [{"name": "registry"}],
            "podSecurity": {"runAsUser": None, "runAsGroup": None},
            "podAnnotations": {"example/team": "streams"},
            "podLabels": {"team": "streams"},
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "control", "operator": "Exists"}],
            "priorityClassName": "system-cluster-critical",
            "serviceAccount": {"create": False, "name": "walrus"},
            "rbac": {"create": False},
            "fullnameOverride": "walrus-op",
            "seccompProfile": {"install": True, "nodeSelector": {"walrus.dev/disk": "nvme"}},
        },
    ),
    Case("cluster-defaults", "walrus", "orders", "shop"),
    Case(
        "cluster-tuned",
        "walrus",
        "release-7",
        "shop",
        {
            "nameOverride": "orders",
            "image": "registry.example/walrus-node:1.2.3",
            "imagePullSecrets": [{"name": "registry"}],
            "pools": [
                {
                    "name": "general",
                    "replicas": 3,
                    "backend": "direct",
                    "storage": {"claim": {"size": "200Gi", "storageClassName": "fast"}},
                    "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
                }
            ],
            "segments": {"maxEntries": 100000, "maxAge": "1h"},
            "fsync": {"mode": "interval", "interval": "100ms"},
            "listeners": [
                {"name": "kafka"},
                {"name": "outside", "protocol": "kafka", "port": 9094, "type": "NodePort", "admin": True},
            ],
            "deletionPolicy": "Delete",
            "topics": [
                {"name": "orders", "partitions": 6, "retention": {"age": "7d"}, "configs": {"min.insync.replicas": 2}},
                {"name": "Orders.v2", "org": "acme", "deletionPolicy": "Delete"},
            ],
        },
    ),
]
