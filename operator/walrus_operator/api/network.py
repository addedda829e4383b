"""Who may open connections to brokers, as a NetworkPolicy says."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from walrus_operator.api.affinity import LabelSelector
from walrus_operator.api.listeners import AddressRange
from walrus_operator.api.schema import ATOMIC, Model, rules


class IpBlock(Model):
    """A range of addresses."""

    cidr: AddressRange
    """The range, for example `192.0.2.0/24`."""


class Peer(Model):
    """Some that may connect: pods, of certain namespaces, or a range of addresses."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",
                "a peer must be either ipBlock, or podSelector, namespaceSelector or both",
            )
        )
    )

    pod_selector: LabelSelector | None = None
    """Pods, by label; without `namespaceSelector` of the cluster's own namespace."""
    namespace_selector: LabelSelector | None = None
    """Their namespaces, by label; `{}` selects all."""
    ip_block: IpBlock | None = None
    """Or a range of addresses."""


class NetworkPolicy(Model):
    """Who may connect to brokers, where the network of Kubernetes asks for it. Brokers always reach each other."""

    enabled: bool = True
    """Whether there is a NetworkPolicy. With it the ports of Raft and of peers are for brokers only."""
    admin_from: list[Peer] = Field(default_factory=list, max_length=32, json_schema_extra=ATOMIC)
    """Who reaches the Admin API besides brokers and the operator."""
    metrics_from: list[Peer] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """Who reaches `/metrics` and the pages of health; without it everybody, with `[]` nobody."""
    listeners_from: list[Peer] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """Who reaches the listeners of clients; without it everybody, with `[]` nobody but brokers."""
