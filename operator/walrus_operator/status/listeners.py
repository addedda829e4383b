"""Where clients find the listeners, as the status tells."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.listeners import Listener, ServiceType
from walrus_operator.api.status import ListenerBrokerRow, ListenerRow
from walrus_operator.objects import SERVICE, Ref
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.advertising import ingress, joined, node_host, node_port

_NODES_MAX = 3
"""Nodes that the status names as bootstrap addresses: a client needs one, and others where that one is away."""


def listener_rows(spec: ClusterSpec, snapshot: Snapshot) -> list[ListenerRow]:
    """A row for each listener of the spec in force."""
    return [
        ListenerRow(
            name=listener.name,
            type=str(listener.type),
            addresses=_addresses(listener, snapshot),
            brokers=_brokers(listener, snapshot) if listener.names_brokers else None,
        )
        for listener in spec.listeners
    ]


def _addresses(listener: Listener, snapshot: Snapshot) -> list[str]:
    names = snapshot.cluster.names
    if not listener.is_outside:
        return [f"{names.client}.{names.namespace}.svc:{listener.serves_at}"]
    service = snapshot.objects.get(Ref(SERVICE.name, names.namespace, names.listener(listener.name)), {})
    if listener.type is ServiceType.LOAD_BALANCER:
        host = ingress(service)
        return [joined(host, listener.serves_at)] if host else []
    port = node_port(service)
    if port is None:
        return []
    hosts = {node_host(listener, pod, snapshot) for pod in snapshot.pods.values() if pod.node is not None}
    return [joined(host, port) for host in sorted(filter(None, hosts))[:_NODES_MAX]] or [f"<any node>:{port}"]


def _brokers(listener: Listener, snapshot: Snapshot) -> list[ListenerBrokerRow]:
    name = f"{listener.speaks}/{listener.name}"
    found = []
    for pod in sorted(snapshot.pods.values(), key=lambda pod: (pod.pool, len(pod.name), pod.name)):
        told = dict(line.partition("=")[::2] for line in pod.advertised.split())
        if name in told:
            found.append(ListenerBrokerRow(pod=pod.name, address=told[name]))
    return found
