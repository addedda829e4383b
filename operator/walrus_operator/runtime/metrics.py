"""Metrics of the operator."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from walrus_operator.objects import Key


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.passes = Counter(
            "walrus_operator_passes_total", "Passes over clusters.", ["outcome"], registry=self.registry
        )
        self.pass_seconds = Histogram("walrus_operator_pass_seconds", "How long a pass took.", registry=self.registry)
        self.actions = Counter("walrus_operator_actions_total", "What was done.", ["action"], registry=self.registry)
        self.calls = Counter(
            "walrus_operator_kubernetes_calls_total",
            "Calls to Kubernetes.",
            ["verb", "kind", "outcome"],
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "walrus_operator_kubernetes_call_seconds",
            "How long calls to Kubernetes took.",
            ["verb"],
            registry=self.registry,
        )
        self.queued = Gauge(
            "walrus_operator_queued", "Clusters, and topics of clusters, to be looked at.", registry=self.registry
        )
        self.blocked = Gauge(
            "walrus_operator_blocked",
            "1 while the gate is closed.",
            ["namespace", "cluster", "gate"],
            registry=self.registry,
        )
        self.topics = Gauge(
            "walrus_operator_topics",
            "WalrusTopics of a cluster.",
            ["namespace", "cluster", "ready"],
            registry=self.registry,
        )
        self.blocked_since = Gauge(
            "walrus_operator_blocked_since_timestamp_seconds",
            "Since when the gate is closed, as far as this operator knows.",
            ["namespace", "cluster", "gate"],
            registry=self.registry,
        )
        self.condition = Gauge(
            "walrus_operator_cluster_condition",
            "Conditions of a cluster: 1 true, 0 false, -1 unknown.",
            ["namespace", "cluster", "condition"],
            registry=self.registry,
        )
        self.phase = Gauge(
            "walrus_operator_cluster_phase",
            "1 for the phase that a cluster is in.",
            ["namespace", "cluster", "phase"],
            registry=self.registry,
        )
        self.cluster_passes = Counter(
            "walrus_operator_cluster_passes_total",
            "Passes over a cluster.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.cluster_writes = Counter(
            "walrus_operator_cluster_writes_total",
            "What passes over a cluster changed, its status included; at rest nothing.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.definition_differs = Gauge(
            "walrus_operator_definition_differs",
            "1 where the definition of the resource was older or newer than this operator at its start.",
            registry=self.registry,
        )
        self.closed = Gauge(
            "walrus_operator_namespace_closed",
            "1 while the namespace does not answer the operator: nothing is looked after there.",
            ["namespace"],
            registry=self.registry,
        )
        self.deaf = Gauge(
            "walrus_operator_namespace_deaf",
            "1 while no watch tells of what lists of the namespace show: it is listed each few seconds instead.",
            ["namespace"],
            registry=self.registry,
        )
        self.renewal_seconds = Histogram(
            "walrus_operator_lease_renewal_seconds", "How long renewals of the lease took.", registry=self.registry
        )
        self.holds_lease = Gauge("walrus_operator_holds_lease", "1 while this operator works.", registry=self.registry)

    def counted(self, topics: Key, there: int, ready: int) -> None:
        """The topics of a cluster were counted: how many there are, and how many of them are ready."""
        self.topics.labels(topics.namespace, topics.name, "true").set(ready)
        self.topics.labels(topics.namespace, topics.name, "false").set(there - ready)

    def called(self, verb: str, kind: str, outcome: str, seconds: float) -> None:
        """A call to Kubernetes ended."""
        self.calls.labels(verb, kind, outcome).inc()
        self.call_seconds.labels(verb).observe(seconds)
