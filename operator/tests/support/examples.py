"""Clusters that the tests look at."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

CLAIM = {"claim": {"size": "1Gi"}}

SMALLEST: dict[str, Any] = {"version": "1.0.0", "pools": [{"name": "general", "storage": CLAIM}]}

SINGLE: dict[str, Any] = {
    "image": "registry.example/walrus-node@sha256:" + "0" * 64,
    "imagePullSecrets": [{"name": "registry"}],
    "deletionPolicy": "Delete",
    "networkPolicy": {"enabled": False},
    "replication": {"factor": 1},
    "pools": [{"name": "one", "replicas": 1, "backend": "direct", "storage": CLAIM}],
    "fsync": {"mode": "interval", "interval": "2s"},
}

OUTSIDE: dict[str, Any] = {
    "version": "1.0.0",
    "pools": [{"name": "general", "storage": {"claim": {"size": "200Gi", "storageClassName": "fast"}}}],
    "segments": {"maxEntries": 500, "maxBytes": "64Mi", "maxAge": "12h", "checkInterval": "250ms"},
    "listeners": [
        {"name": "text", "type": "NodePort", "nodePort": 30080},
        {"name": "grpc", "type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
        {"name": "kafka"},
        {
            "name": "outside",
            "protocol": "kafka",
            "port": 9094,
            "type": "NodePort",
            "trafficPolicy": "Local",
            "brokers": {"nodePorts": [{"broker": "general-1", "nodePort": 31001}]},
        },
        {
            "name": "acme",
            "protocol": "kafka",
            "port": 9095,
            "org": "acme",
            "admin": True,
            "type": "LoadBalancer",
            "loadBalancerClass": "example.com/inner",
            "sourceRanges": ["192.0.2.0/24"],
            "brokers": {
                "advertisedHost": "{pod}.kafka.example.com",
                "annotations": {"external-dns.alpha.kubernetes.io/hostname": "{pod}.kafka.example.com"},
            },
        },
    ],
}

POOLS: dict[str, Any] = {
    "version": "1.0.0",
    "fsync": {"mode": "never"},
    "replication": {"factor": 5, "writeQuorum": 4},
    "pools": [
        {
            "name": "general",
            "replicas": 3,
            "storage": CLAIM,
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        },
        {
            "name": "nvme",
            "replicas": 2,
            "backend": "io_uring",
            "storage": {"local": {"size": "1Ti", "storageClassName": "nvme-local"}},
            "nodeSelector": {"walrus.dev/disk": "nvme"},
            "tolerations": [{"key": "walrus.dev/only", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {
            "name": "folders",
            "replicas": 2,
            "backend": "direct",
            "storage": {"hostPath": {"path": "/var/lib/walrus-hosts"}},
            "allowHostPath": True,
        },
    ],
}

TUNED: dict[str, Any] = {
    "version": "1.0.0",
    "podSecurity": "Platform",
    "networkPolicy": {
        "adminFrom": [{"podSelector": {"matchLabels": {"app": "backoffice"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "listenersFrom": [{"namespaceSelector": {}, "podSelector": {}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}],
    },
    "config": {
        "dynamic": {"log.level": "debug", "copies.moves_max": 4},
        "static": {"no-auto-create-topics": "true", "hand-over-timeout": "30s"},
    },
    "pools": [
        {
            "name": "general",
            "storage": CLAIM,
            "labels": {"example.com/team": "streams"},
            "annotations": {"example.com/owner": "someone"},
            "priorityClassName": "important",
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}
                        ]
                    }
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 50,
                            "podAffinityTerm": {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "noisy"}},
                            },
                        }
                    ]
                },
            },
            "env": [
                {"name": "MALLOC_ARENA_MAX", "value": "2"},
                {"name": "ACCOUNT", "valueFrom": {"secretKeyRef": {"name": "account", "key": "name"}}},
            ],
        }
    ],
}

EXAMPLES = {"tuned": TUNED, "smallest": SMALLEST, "single": SINGLE, "outside": OUTSIDE, "pools": POOLS}


def changed(spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy with other fields; None takes one out."""
    made = {**deepcopy(spec), **fields}
    return {name: value for name, value in made.items() if value is not None}


def with_pool(spec: dict[str, Any], position: int = 0, **fields: Any) -> dict[str, Any]:
    """A copy in which one pool has other fields; None takes one out."""
    made = deepcopy(spec)
    made["pools"][position] = changed(made["pools"][position], **fields)
    return made
