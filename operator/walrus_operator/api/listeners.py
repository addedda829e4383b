"""`spec.listeners[]`: how clients reach the brokers, from inside of Kubernetes and from outside."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from walrus_operator.api.schema import ATOMIC, Model, Spelled, keyed_by, rules

AddressRange = Annotated[
    str,
    Field(max_length=49),
    Spelled("^[0-9a-fA-F.:]+/[0-9]{1,3}$", "must be a range of addresses, for example 192.0.2.0/24"),
]
"""A range of addresses: `192.0.2.0/24`."""


class Protocol(StrEnum):
    """What a listener speaks."""

    KAFKA = "kafka"
    TEXT = "text"
    GRPC = "grpc"


DEFAULT_PORTS = {Protocol.KAFKA: 9092, Protocol.TEXT: 8080, Protocol.GRPC: 9090}
"""Where every broker listens, whatever the spec says; each is the port of the listener of its protocol's name."""
_OWN_PORTS = (6000, 6001, 8088, 9091)
"""Ports of the brokers themselves: metadata, peers, health, administration."""
_TAKEN_NAMES = ("admin", "brokers", "http", "peer", "raft")
"""Names of the brokers' own ports, and of the Service that names them all."""
DEFAULT_ORG = "default"


class ServiceType(StrEnum):
    """From where a listener can be reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class TrafficPolicy(StrEnum):
    """What a node does with traffic that no pod on it serves."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class NodeAddress(StrEnum):
    """Types of a node's addresses, in the order in which they are looked for."""

    EXTERNAL_DNS = "ExternalDNS"
    EXTERNAL_IP = "ExternalIP"
    INTERNAL_DNS = "InternalDNS"
    INTERNAL_IP = "InternalIP"
    HOSTNAME = "Hostname"


Annotations = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)]
NodePort = Annotated[int, Field(ge=1, le=65535)]

_PLACEHOLDERS = "[{](pod|pool|ordinal)[}]"


class BrokerNodePort(Model):
    """The wanted port on the nodes of one broker."""

    broker: Annotated[
        str,
        Field(max_length=23),
        Spelled(
            "^[a-z]([-a-z0-9]*[a-z0-9])?-[0-9]{1,2}$", "must be pool and ordinal of a broker, for example general-0"
        ),
    ]
    """Pool and ordinal of the broker, for example `general-0`."""
    node_port: NodePort
    """The port."""


class ListenerBrokers(Model):
    """The Services of single brokers, by which clients outside reach the leader of a partition."""

    advertised_host: (
        Annotated[
            str,
            Field(max_length=253),
            Spelled(
                f"^([A-Za-z0-9.-]|{_PLACEHOLDERS})*[{{](pod|ordinal)[}}]([A-Za-z0-9.-]|{_PLACEHOLDERS})*$",
                "must be a host with {pod}, or {ordinal} and {pool}, in it, for example {pod}.kafka.example.com",
            ),
        ]
        | None
    ) = None
    """Host that clients are told for a broker; `{pod}`, `{pool}` and `{ordinal}` stand for the broker's. Without it the
    address of its node, or of its load balancer."""
    annotations: Annotations | None = None
    """Annotations of each broker's Service; the same words stand for the broker's, for example
    `{external-dns.alpha.kubernetes.io/hostname: "{pod}.kafka.example.com"}`."""
    node_ports: list[BrokerNodePort] | None = Field(default=None, max_length=100, json_schema_extra=keyed_by("broker"))
    """Wanted ports on the nodes; Kubernetes chooses those of the other brokers."""

    def node_port_of(self, broker: str) -> int | None:
        """The wanted port of the broker of that pool and ordinal."""
        return next((one.node_port for one in self.node_ports or () if one.broker == broker), None)


_IS_NAMED_AS_PROTOCOL = "self.name in ['kafka', 'text', 'grpc']"
_IS_OUTSIDE = "self.type != 'ClusterIP'"


class Listener(Model):
    """How clients reach the brokers with one protocol, at a port of its own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                (
                    f"has(self.protocol) ? (!({_IS_NAMED_AS_PROTOCOL}) || self.protocol == self.name)"
                    f" : {_IS_NAMED_AS_PROTOCOL}"
                ),
                (
                    "protocol must be kafka, text or grpc; a listener of one of these names speaks it without being"
                    " told: for example {name: outside, protocol: kafka, port: 9094}"
                ),
            ),
            (
                f"has(self.port) || {_IS_NAMED_AS_PROTOCOL}",
                "port is missing: each listener has its own, for example 9094",
            ),
            (
                f"!has(self.port) || !(self.port in {list(_OWN_PORTS)})",
                "ports 6000, 6001, 8088 and 9091 are the brokers' own: take another one, for example 9094",
            ),
            (
                (
                    "!has(self.port) || ((self.port != 8080 || self.name == 'text') && (self.port != 9090 ||"
                    " self.name == 'grpc') && (self.port != 9092 || self.name == 'kafka'))"
                ),
                (
                    "ports 8080, 9090 and 9092 are those of the listeners text, grpc and kafka: take another one,"
                    " for example 9094"
                ),
            ),
            (
                f"!(self.name in {list(_TAKEN_NAMES)})",
                "the brokers use the names admin, brokers, http, peer and raft: take another one, for example outside",
            ),
            (
                f"!has(self.nodePort) || {_IS_OUTSIDE}",
                "nodePort needs type: NodePort or LoadBalancer",
            ),
            (
                f"!has(self.annotations) || {_IS_OUTSIDE}",
                "annotations belong to the Service of type: NodePort or LoadBalancer",
            ),
            (
                f"!has(self.trafficPolicy) || {_IS_OUTSIDE}",
                "trafficPolicy belongs to the Services of type: NodePort or LoadBalancer",
            ),
            (
                (
                    f"!has(self.brokers) || ({_IS_OUTSIDE} && self.name != 'text'"
                    " && (!has(self.protocol) || self.protocol != 'text'))"
                ),
                (
                    "brokers is for type: NodePort or LoadBalancer of kafka and grpc: clients of the other listeners"
                    " are told of no single broker"
                ),
            ),
            (
                "!has(self.nodeAddress) || self.type == 'NodePort'",
                "nodeAddress needs type: NodePort",
            ),
            (
                "!(has(self.loadBalancerClass) || has(self.sourceRanges)) || self.type == 'LoadBalancer'",
                "loadBalancerClass and sourceRanges need type: LoadBalancer",
            ),
        )
    )

    name: Annotated[
        str,
        Field(max_length=13),
        Spelled(
            "^[a-z][a-z0-9]*$", "must start with a letter and hold only small letters and digits, for example outside"
        ),
    ]
    """Name of the listener: clients are told the brokers' addresses of this name. `kafka`, `text` and `grpc` are those
    that every broker has, at ports 9092, 8080 and 9090."""
    protocol: Protocol | None = None
    """What is spoken there; without it what the listener is called."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of the brokers and of the Services; without it that of the listener of its name."""
    org: Annotated[
        str,
        Field(max_length=63),
        Spelled("^[A-Za-z0-9][A-Za-z0-9._-]*$", "must be the name of an organisation, for example acme"),
    ] = DEFAULT_ORG
    """Organisation whose topics its clients see."""
    admin: bool | None = None
    """Whether its clients may make, change and delete topics; without it only those of type `ClusterIP` may, since
    nobody outside has to prove who they are."""
    type: ServiceType = ServiceType.CLUSTER_IP
    """`ClusterIP`: inside Kubernetes. The others add a Service `<cluster>-<listener>` for clients outside and, for
    `kafka` and `grpc`, a Service `<pod>-<listener>` for each broker."""
    node_port: NodePort | None = None
    """Wanted port on the nodes of `<cluster>-<listener>`; without it Kubernetes chooses one."""
    annotations: Annotations | None = None
    """Annotations of `<cluster>-<listener>`, for example those that configure a load balancer."""
    traffic_policy: TrafficPolicy | None = None
    """External traffic policy of the Services; with `Local` brokers see who connects, nodes without a broker refuse."""
    node_address: NodeAddress | None = None
    """Type of the nodes' addresses that clients are told; without it, or where a node has none, its first one of
    `ExternalDNS`, `ExternalIP`, `InternalDNS`, `InternalIP`, `Hostname`."""
    load_balancer_class: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Class of the load balancers; without it the cluster's default one."""
    source_ranges: list[AddressRange] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """From where the load balancers take connections; without it from everywhere."""
    brokers: ListenerBrokers | None = None
    """How single brokers are reached, with type `NodePort` and `LoadBalancer`."""

    @property
    def speaks(self) -> Protocol:
        """The protocol, as given or by the name. Raises `ValueError`."""
        return self.protocol or Protocol(self.name)

    @property
    def serves_at(self) -> int:
        """The port, as given or by the protocol."""
        return self.port or DEFAULT_PORTS[self.speaks]

    @property
    def is_outside(self) -> bool:
        """Whether clients outside of Kubernetes reach it."""
        return self.type is not ServiceType.CLUSTER_IP

    @property
    def names_brokers(self) -> bool:
        """Whether its clients are told of single brokers, at addresses that the operator finds out."""
        return self.is_outside and self.speaks is not Protocol.TEXT

    @property
    def lets_admin(self) -> bool:
        """Whether its clients may change topics, as given or by default."""
        return not self.is_outside if self.admin is None else self.admin


def default_listeners() -> list[Listener]:
    """One of each protocol, inside of Kubernetes."""
    return [Listener(name=str(protocol)) for protocol in Protocol]
