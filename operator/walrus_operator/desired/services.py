"""Services: one that names every broker, one for clients inside, one for each listener that is open to the outside."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec, Listener, Protocol, ServiceType
from walrus_operator.desired import names as n
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.objects import SERVICE, Manifest

PORTS = {Protocol.TEXT: n.TEXT_PORT, Protocol.GRPC: n.GRPC_PORT}


def services(owner: Owner, spec: ClusterSpec) -> list[Manifest]:
    """All Services of the cluster."""
    outside = [listener for listener in spec.listeners if listener.type is not ServiceType.CLUSTER_IP]
    inside = [_client(owner, spec)] if spec.listeners else []
    return [_brokers(owner), *inside, *(_outside(owner, listener) for listener in outside)]


def _brokers(owner: Owner) -> Manifest:
    """Addresses for every broker from its first moment on: brokers find each other before they are ready."""
    return object_of(
        owner,
        SERVICE,
        owner.names.brokers,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.names.selector(),
            "ports": [
                _port("raft", n.RAFT_PORT),
                _port("peer", n.PEER_PORT),
                _port("admin", n.ADMIN_PORT),
                _port("grpc", n.GRPC_PORT),
                _port("text", n.TEXT_PORT),
                _port("http", n.HTTP_PORT),
            ],
        },
    )


def _client(owner: Owner, spec: ClusterSpec) -> Manifest:
    """Brokers that serve, for clients inside Kubernetes."""
    ports = [_port(listener.name, PORTS[listener.name]) for listener in spec.listeners]
    return object_of(
        owner,
        SERVICE,
        owner.names.client,
        spec={"type": "ClusterIP", "selector": owner.names.selector(), "ports": ports},
    )


def _outside(owner: Owner, listener: Listener) -> Manifest:
    """Brokers that serve, for clients outside. Any broker takes any request, so one address is enough."""
    port = _port(listener.name, PORTS[listener.name])
    if listener.node_port is not None:
        port["nodePort"] = listener.node_port
    made = object_of(
        owner,
        SERVICE,
        owner.names.listener(listener.name),
        spec={"type": str(listener.type), "selector": owner.names.selector(), "ports": [port]},
    )
    if listener.annotations:
        made["metadata"]["annotations"] = dict(listener.annotations)
    return made


def _port(name: str, port: int) -> Manifest:
    return {"name": str(name), "port": port, "protocol": "TCP", "targetPort": str(name)}
