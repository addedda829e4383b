"""The topic that a `WalrusTopic` asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walrus_operator.api.topic import TopicSpec


@dataclass(frozen=True)
class Wanted:
    """A topic as it shall be."""

    org: str
    name: str
    partitions: int
    config: Mapping[str, str]
    """All the settings that it shall have itself."""

    @property
    def path(self) -> tuple[str, str]:
        """Its organisation and its name there: no two topics of a cluster have both."""
        return self.org, self.name

    def __str__(self) -> str:
        return f"{self.org}/{self.name}"


def wanted(spec: TopicSpec, name: str) -> Wanted:
    """The topic of a spec; *name* is what the resource is called."""
    return Wanted(spec.org, spec.name or name, spec.partitions, spec.settings())
