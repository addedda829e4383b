"""Where pods may run, in the words of Kubernetes: the part of `pods[].spec.affinity` that a pool may say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from walrus_operator.api.schema import ATOMIC, Label, Model

Key = Annotated[str, Field(min_length=1, max_length=316)]
Values = Annotated[list[Label], Field(max_length=64, json_schema_extra=ATOMIC)]
Weight = Annotated[int, Field(ge=1, le=100)]


class Requirement(Model):
    """What is asked of one label."""

    key: Key
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How it is compared with `values`; `Gt` and `Lt` are for nodes only."""
    values: Values | None = None
    """What it is compared with."""


class LabelSelector(Model):
    """Objects by their labels; an empty one selects all."""

    match_labels: Annotated[dict[str, Label], Field(max_length=32)] | None = None
    """Labels that an object must bear."""
    match_expressions: list[Requirement] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """Further requirements; all of them hold."""


class NodeTerm(Model):
    """Nodes by labels and fields; all requirements hold."""

    match_expressions: list[Requirement] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """Requirements on labels of the node."""
    match_fields: list[Requirement] | None = Field(default=None, max_length=8, json_schema_extra=ATOMIC)
    """Requirements on fields of the node, such as `metadata.name`."""


class NodeTerms(Model):
    """One of several terms."""

    node_selector_terms: list[NodeTerm] = Field(min_length=1, max_length=16, json_schema_extra=ATOMIC)
    """The terms; one of them holds."""


class PreferredNodes(Model):
    """Nodes that are better than others."""

    weight: Weight
    """How much better."""
    preference: NodeTerm
    """Which ones."""


class NodeAffinity(Model):
    """Nodes that brokers may or should run on."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    """Nodes that brokers must run on."""
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] | None = Field(
        default=None, max_length=16, json_schema_extra=ATOMIC
    )
    """Nodes that brokers should run on."""


class PodTerm(Model):
    """Other pods, and how far from them is meant."""

    topology_key: Key
    """Label of nodes: those of the same value are one place, for example `kubernetes.io/hostname`."""
    label_selector: LabelSelector | None = None
    """Which pods."""
    namespace_selector: LabelSelector | None = None
    """Their namespaces, by label."""
    namespaces: list[Annotated[str, Field(max_length=63)]] | None = Field(
        default=None, max_length=32, json_schema_extra=ATOMIC
    )
    """Their namespaces, by name; without both the cluster's own."""


class PreferredPods(Model):
    """Places that are better than others."""

    weight: Weight
    """How much better."""
    pod_affinity_term: PodTerm
    """Which ones."""


class PodAffinity(Model):
    """Pods that brokers must or should run beside; in `podAntiAffinity`, not beside."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = Field(
        default=None, max_length=16, json_schema_extra=ATOMIC
    )
    """What must hold."""
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] | None = Field(
        default=None, max_length=16, json_schema_extra=ATOMIC
    )
    """What should hold."""


class Affinity(Model):
    """Where the brokers of a pool may run, as Kubernetes' own `affinity`."""

    node_affinity: NodeAffinity | None = None
    """Nodes that brokers may or should run on."""
    pod_affinity: PodAffinity | None = None
    """Pods that brokers shall run beside."""
    pod_anti_affinity: PodAffinity | None = None
    """Pods that brokers shall not run beside."""
