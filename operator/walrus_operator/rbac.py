"""What the operator may do: one table, from which the charts' roles are made. Tests compare it with what is done."""

from __future__ import annotations

from typing import Any

import yaml

RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # group, resource, verbs
    ("walrus.dev", "walrusclusters", ("get", "list", "patch", "watch")),
    ("walrus.dev", "walrusclusters/status", ("patch",)),
    ("walrus.dev", "walrustopics", ("list", "patch", "watch")),
    ("walrus.dev", "walrustopics/status", ("patch",)),
    ("apps", "statefulsets", ("create", "delete", "get", "list", "patch", "watch")),
    ("", "configmaps", ("create", "delete", "get", "list", "patch")),
    ("", "services", ("create", "delete", "get", "list", "patch")),
    ("", "serviceaccounts", ("create", "get", "list", "patch")),
    ("policy", "poddisruptionbudgets", ("create", "get", "list", "patch")),
    ("networking.k8s.io", "networkpolicies", ("create", "delete", "get", "list", "patch")),
    ("", "secrets", ("create", "get")),
    ("", "pods", ("get", "list", "patch", "update")),
    ("", "pods/eviction", ("create",)),
    ("", "persistentvolumeclaims", ("delete", "get", "list", "patch")),
    ("", "events", ("create",)),
)
"""In the namespaces that are watched."""

UNWATCHED_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("walrus.dev", "walrusclusters", ("list",)),
    ("walrus.dev", "walrusclusters/status", ("patch",)),
)
"""In all namespaces, where clusters that nobody watches shall say so."""

NODE_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # group, resource, verbs
    ("", "nodes", ("get", "list")),
    ("", "persistentvolumes", ("get",)),
    ("apiextensions.k8s.io", "customresourcedefinitions", ("get",)),
)
"""Looks outside of namespaces, and nothing else there: at the addresses of nodes, which clients outside are told where
they come in through ports of nodes; at all nodes and the volume of a broker that is away, whose node may be gone; and
once at each start at the definition of the resource.
"""

LEASE_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("coordination.k8s.io", "leases", ("create", "get", "update")),
)
"""In the operator's own namespace."""


def rules(table: tuple[tuple[str, str, tuple[str, ...]], ...]) -> list[dict[str, Any]]:
    """The rules of a Role."""
    return [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)} for group, resource, verbs in table]


def rules_yaml() -> str:
    """All lists of rules, as the charts take them."""
    tables = {
        "watched": rules(RULES),
        "unwatched": rules(UNWATCHED_RULES),
        "nodes": rules(NODE_RULES),
        "own": rules(LEASE_RULES),
    }
    return yaml.safe_dump(tables, sort_keys=False)
