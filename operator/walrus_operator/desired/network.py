"""The NetworkPolicy: who may open connections to which ports of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.network import Peer
from walrus_operator.desired import names as n
from walrus_operator.desired.listeners import listener_inputs, ports
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.objects import NETWORK_POLICY, Manifest

_NAMESPACE = "kubernetes.io/metadata.name"
"""Label that Kubernetes puts on each namespace."""
_OPERATOR = {"app.kubernetes.io/part-of": "walrus", "app.kubernetes.io/component": "operator"}
"""Labels that the chart puts on the operator's pods, whatever the release is called."""


def network_policy(owner: Owner, spec: ClusterSpec, operator_namespace: str) -> list[Manifest]:
    """The policy, or none. Kubelets reach what they probe in any case."""
    wanted = spec.network_policy
    if not wanted.enabled:
        return []
    operator = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE: operator_namespace}},
        "podSelector": {"matchLabels": _OPERATOR},
    }
    clients = sorted({listener.serves_at for listener in spec.listeners} | set(ports(listener_inputs(spec)).values()))
    ingress = [
        {"from": [{"podSelector": {"matchLabels": owner.names.selector()}}]},
        {"from": [operator, *_plain(wanted.admin_from)], "ports": _ports([n.ADMIN_PORT])},
        *_rule(wanted.metrics_from, [n.HTTP_PORT]),
        *_rule(wanted.listeners_from, clients),
    ]
    policy = {
        "podSelector": {"matchLabels": owner.names.selector()},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return [object_of(owner, NETWORK_POLICY, owner.names.policy, spec=policy)]


def operator_namespace_of(policy: Manifest | None) -> str:
    """The namespace of the operator that a policy of a cluster lets in; "" where there is no such policy."""
    for rule in policy["spec"].get("ingress", ()) if policy is not None else ():
        for peer in rule.get("from", ()):
            if peer.get("podSelector", {}).get("matchLabels") == _OPERATOR:
                return str(peer.get("namespaceSelector", {}).get("matchLabels", {}).get(_NAMESPACE, ""))
    return ""


def _rule(peers: Sequence[Peer] | None, numbers: Iterable[int]) -> list[Manifest]:
    """Who reaches these ports. An empty list in a rule would mean everybody, so nobody is no rule at all."""
    if peers is None:
        return [{"ports": _ports(numbers)}]
    return [{"from": _plain(peers), "ports": _ports(numbers)}] if peers else []


def _ports(numbers: Iterable[int]) -> list[Manifest]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]


def _plain(peers: Iterable[Peer]) -> list[dict[str, Any]]:
    return [peer.model_dump(mode="json", by_alias=True, exclude_none=True) for peer in peers]
