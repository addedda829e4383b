"""Nodes of Kubernetes, and from which of them a volume can be reached, by the rules of its node affinity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from walrus_operator.objects import Manifest

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
_NAME = "metadata.name"
_OF_ONE_NODE = frozenset({"hostname", "node", "nodename"})
"""Labels that name one node, by what follows the slash: `kubernetes.io/hostname`, and those of drivers of disks."""


@dataclass(frozen=True)
class Machine:
    """A node, as the API server has it."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    """Whether its kubelet answers."""
    cordoned: bool
    """Whether someone wants no new pods on it."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Machine:
        """From the API server's object."""
        metadata = manifest["metadata"]
        conditions = {one["type"]: one["status"] for one in manifest.get("status", {}).get("conditions", ())}
        return cls(
            name=metadata["name"],
            labels=metadata.get("labels") or {},
            ready=conditions.get("Ready", "True") == "True",
            cordoned=bool(manifest.get("spec", {}).get("unschedulable", False)),
        )


@dataclass(frozen=True)
class Requirement:
    """What a volume asks of a node: about a label of it, or about its name."""

    key: str
    operator: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Requirement:
        """From an expression of the API server's object."""
        return cls(told["key"], told["operator"], tuple(told.get("values") or ()))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it names; empty where it is about something else."""
        names_nodes = self.key == _NAME or self.key.rpartition("/")[2] in _OF_ONE_NODE
        return self.values if names_nodes and self.operator == "In" else ()

    def is_met(self, machine: Machine) -> bool:
        """Whether the node is as it asks; one that nobody understands rules no node out."""
        told = machine.name if self.key == _NAME else machine.labels.get(self.key)
        match self.operator:
            case "In":
                return told in self.values
            case "NotIn":
                return told not in self.values
            case "Exists":
                return told is not None
            case "DoesNotExist":
                return told is None
            case _:
                return True


@dataclass(frozen=True)
class Volume:
    """A persistent volume, and the nodes from which it can be reached."""

    name: str
    """Its name; "" where it is a folder of a node."""
    terms: tuple[tuple[Requirement, ...], ...]
    """One of them must be met, with all its requirements; without any, every node reaches it."""
    zones: frozenset[str] = frozenset()
    """The zones that it names."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Volume:
        """From the API server's object."""
        metadata = manifest["metadata"]
        affinity = manifest.get("spec", {}).get("nodeAffinity") or {}
        told = (affinity.get("required") or {}).get("nodeSelectorTerms") or ()
        terms = tuple(
            tuple(map(Requirement.parse, (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))))
            for term in told
        )
        named = {zone for term in terms for one in term if one.key == ZONE for zone in one.values}
        label = (metadata.get("labels") or {}).get(ZONE)
        return cls(metadata["name"], terms, frozenset(named | ({label} if label else set())))

    @classmethod
    def folder(cls, node: str) -> Volume:
        """A folder of this node, which is no volume of Kubernetes."""
        return cls("", ((Requirement(_NAME, "In", (node,)),),))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it is on; empty where it is no disk of a node, so that another one can reach it, too."""
        named = [tuple(node for one in term for node in one.nodes) for term in self.terms]
        return tuple(sorted({node for nodes in named for node in nodes})) if named and all(named) else ()

    def reached_from(self, machines: Iterable[Machine]) -> list[Machine]:
        """The nodes from which it can be reached."""
        return [one for one in machines if not self.terms or any(self._meets(term, one) for term in self.terms)]

    def lost_zone(self, machines: Iterable[Machine]) -> str:
        """A zone that it names and of which there is no node any more; "" where there is none."""
        there = {one.labels.get(ZONE) for one in machines}
        return min(self.zones - there, default="")

    @staticmethod
    def _meets(term: tuple[Requirement, ...], machine: Machine) -> bool:
        return bool(term) and all(one.is_met(machine) for one in term)
