"""What clients outside are told of each broker, from what Kubernetes gave its Services and its node. Pure.

A broker is told by an annotation of its pod, which it reads as a file. So an address that changes, with the pod's node
or with a load balancer, reaches it while it runs, and a pod that is made anew has none of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.listeners import Listener, NodeAddress, ServiceType
from walrus_operator.desired.services import Place
from walrus_operator.objects import NODE, SERVICE, Ref
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Advertise, Gate, Wait


def advertise(
    spec: ClusterSpec, snapshot: Snapshot, places: Iterable[Place]
) -> tuple[tuple[Advertise, ...], tuple[Wait, ...]]:
    """What brokers are to be told, and which addresses nobody knows yet."""
    listeners = [listener for listener in spec.listeners if listener.names_brokers]
    actions: list[Advertise] = []
    pending: dict[str, str] = {}
    for place in places:
        pod = snapshot.pods.get(snapshot.cluster.names.pod(place.pool, place.ordinal))
        if pod is None or pod.deleting or pod.node is None:
            continue
        told = []
        for listener in listeners:
            address = address_of(listener, place, pod, snapshot)
            if address is None:
                pending.setdefault(listener.name, pod.name)
            else:
                told.append(f"{listener.speaks}/{listener.name}={address}")
        wanted = "\n".join(told)
        if wanted != pod.advertised:
            actions.append(Advertise(pod.name, pod.uid, wanted))
    waits = [_pending(listener, pending[listener.name], snapshot) for listener in listeners if listener.name in pending]
    return tuple(actions), (*waits, *_hidden(listeners, snapshot))


def address_of(listener: Listener, place: Place, pod: Pod, snapshot: Snapshot) -> str | None:
    """`host:port` of a broker for clients outside; None as long as Kubernetes has not given it all of that."""
    names = snapshot.cluster.names
    service = snapshot.objects.get(Ref(SERVICE.name, names.namespace, names.single(pod.name, listener.name)), {})
    if service.get("spec", {}).get("type") != listener.type:
        return None
    balanced = listener.type is ServiceType.LOAD_BALANCER
    host = ingress(service) if balanced else node_host(listener, pod, snapshot)
    port = listener.serves_at if balanced else node_port(service)
    if listener.brokers is not None and listener.brokers.advertised_host is not None:
        host = place.filled(listener.brokers.advertised_host, names)
    return joined(host, port) if host and port else None


def ingress(service: Mapping[str, Any]) -> str | None:
    """The host of a load balancer, once it is there."""
    found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host: str | None = found[0].get("hostname") or found[0].get("ip")
    return host


def node_port(service: Mapping[str, Any]) -> int | None:
    """The port of the nodes that leads to a Service."""
    found = service.get("spec", {}).get("ports") or [{}]
    port: int | None = found[0].get("nodePort")
    return port


def node_host(listener: Listener, pod: Pod, snapshot: Snapshot) -> str | None:
    """The node of a pod, as clients outside reach it; what its kubelet told where the operator may not look at it."""
    addresses = snapshot.nodes.get(pod.node or "", {})
    wanted = [*([listener.node_address] if listener.node_address else []), *NodeAddress]
    return next((addresses[one] for one in wanted if one in addresses), pod.node_ip)


def joined(host: str, port: int) -> str:
    """Host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pending(listener: Listener, pod: str, snapshot: Snapshot) -> Wait:
    service = Ref(SERVICE.name, snapshot.cluster.key.namespace, snapshot.cluster.names.single(pod, listener.name))
    lacks = "address of a load balancer" if listener.type is ServiceType.LOAD_BALANCER else "port or address of a node"
    return Wait(
        Gate.ADDRESS_PENDING,
        f"listener {listener.name}: {service} has no {lacks} yet; until it has, clients outside are told of other"
        f" brokers in the place of {pod}: kubectl describe service {service.name} tells why, if it stays so",
    )


def _hidden(listeners: Iterable[Listener], snapshot: Snapshot) -> list[Wait]:
    """An address of a certain type was asked for, and nobody may look which ones the nodes have."""
    wanted = [one.name for one in listeners if one.node_address not in (None, NodeAddress.INTERNAL_IP)]
    if NODE.name not in snapshot.unseen or not wanted:
        return []
    return [
        Wait(
            Gate.FORBIDDEN,
            f"listener {wanted[0]}: nodeAddress needs a look at nodes, which the operator may not take (value"
            f" rbac.clusterRole of its chart): {snapshot.unseen[NODE.name]}",
        )
    ]
