"""Options of the operator: environment variables WALRUS_OPERATOR_*."""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """What the chart sets."""

    model_config = SettingsConfigDict(env_prefix="WALRUS_OPERATOR_", frozen=True)

    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces to look after, separated by commas; `*`: all; none: the operator's own."""
    pod_namespace: str = "default"
    """Where the operator runs, and its lease lies."""
    pod_name: str = Field(default_factory=socket.gethostname)
    """Who holds the lease."""
    lease_name: str = "walrus-operator"
    health_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """/healthz and /metrics."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or an object of JSON each."""
    default_image: str = "walrus/walrus-node"
    """Image of brokers: `spec.version` replaces its tag; with a digest, that is pinned where the tags are the same."""
    marks_unwatched: bool = False
    """Whether clusters of other namespaces shall say that nobody watches them; takes rights in all namespaces."""
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    """Clusters that are worked on at the same time."""

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def everywhere(self) -> bool:
        """Whether all namespaces are looked after."""
        return "*" in self.namespaces

    @property
    def watched(self) -> tuple[str | None, ...]:
        """The namespaces to look after; None stands for all."""
        return (None,) if self.everywhere else self.namespaces or (self.pod_namespace,)
