"""Services: one that names every broker, one for clients inside, and for each listener that is open to the outside one
that leads to any broker and, where its clients are told of brokers, one that leads to each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.listeners import Listener, ListenerBrokers
from walrus_operator.desired import names as n
from walrus_operator.desired.listeners import listener_inputs, ports
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.objects import SERVICE, Manifest


@dataclass(frozen=True)
class Place:
    """Which broker: its pool, and its number there."""

    pool: str
    ordinal: int

    @property
    def name(self) -> str:
        """As users write it."""
        return f"{self.pool}-{self.ordinal}"

    def filled(self, text: str, names: n.Names) -> str:
        """The text with what stands there for the broker's pod, pool and ordinal."""
        words = {"{pod}": names.pod(self.pool, self.ordinal), "{pool}": self.pool, "{ordinal}": str(self.ordinal)}
        for word, value in words.items():
            text = text.replace(word, value)
        return text


def places(replicas: Mapping[str, int]) -> Iterator[Place]:
    """The brokers of pools of so many."""
    return (Place(pool, ordinal) for pool, number in replicas.items() for ordinal in range(number))


def services(owner: Owner, spec: ClusterSpec, replicas: Mapping[str, int]) -> list[Manifest]:
    """All Services of the cluster, whose pools have so many brokers now."""
    outside = [listener for listener in spec.listeners if listener.is_outside]
    inside = [_client(owner, spec)] if spec.listeners else []
    single = [
        _single(owner, listener, place) for listener in outside if listener.names_brokers for place in places(replicas)
    ]
    return [_brokers(owner, spec), *inside, *(_outside(owner, listener) for listener in outside), *single]


def _brokers(owner: Owner, spec: ClusterSpec) -> Manifest:
    """Addresses for every broker from its first moment on: brokers find each other before they are ready."""
    own = {"raft": n.RAFT_PORT, "peer": n.PEER_PORT, "admin": n.ADMIN_PORT, "http": n.HTTP_PORT}
    of_clients = ports(listener_inputs(spec))
    return object_of(
        owner,
        SERVICE,
        owner.names.brokers,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.names.selector(),
            "ports": [_port(name, port) for name, port in {**own, **of_clients}.items()],
        },
    )


def _client(owner: Owner, spec: ClusterSpec) -> Manifest:
    """Brokers that serve, for clients inside Kubernetes."""
    return object_of(
        owner,
        SERVICE,
        owner.names.client,
        spec={
            "type": "ClusterIP",
            "selector": owner.names.selector(),
            "ports": [_port(listener.name, listener.serves_at) for listener in spec.listeners],
        },
    )


def _outside(owner: Owner, listener: Listener) -> Manifest:
    """Brokers that serve, for clients outside: where these begin, and all that is needed where any broker will do."""
    made = object_of(
        owner,
        SERVICE,
        owner.names.listener(listener.name),
        spec={**_exposed(listener, listener.node_port), "selector": owner.names.selector()},
    )
    if listener.annotations:
        made["metadata"]["annotations"] = dict(listener.annotations)
    return made


def _single(owner: Owner, listener: Listener, place: Place) -> Manifest:
    """One broker, for clients outside. Nobody else can answer for it, so it is named before it is ready, too."""
    names, wanted = owner.names, listener.brokers or ListenerBrokers()
    pod = names.pod(place.pool, place.ordinal)
    made = object_of(
        owner,
        SERVICE,
        names.single(pod, listener.name),
        spec={
            **_exposed(listener, wanted.node_port_of(place.name)),
            "publishNotReadyAddresses": True,
            "selector": {**names.selector(place.pool), n.POD_NAME: pod},
        },
    )
    if wanted.annotations:
        filled = {key: place.filled(value, names) for key, value in wanted.annotations.items()}
        made["metadata"]["annotations"] = filled
    return made


def _exposed(listener: Listener, node_port: int | None) -> Manifest:
    port = _port(listener.name, listener.serves_at)
    if node_port is not None:
        port["nodePort"] = node_port
    made: Manifest = {"type": str(listener.type), "ports": [port]}
    if listener.traffic_policy is not None:
        made["externalTrafficPolicy"] = str(listener.traffic_policy)
    if listener.load_balancer_class is not None:
        made["loadBalancerClass"] = listener.load_balancer_class
    if listener.source_ranges is not None:
        made["loadBalancerSourceRanges"] = list(listener.source_ranges)
    return made


def _port(name: str, port: int) -> Manifest:
    """By number: pods that were made by another release may not name it."""
    return {"name": str(name), "port": port, "protocol": "TCP", "targetPort": port}
