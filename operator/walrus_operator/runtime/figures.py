"""What metrics tell of each cluster: its conditions, its phase, the gates that hold it up, what passes wrote."""

from __future__ import annotations

from prometheus_client import Gauge

from walrus_operator.clock import Now
from walrus_operator.objects import Key
from walrus_operator.reconcile import Pass
from walrus_operator.runtime.metrics import Metrics

_ANSWERS = {"True": 1.0, "False": 0.0}
_UNKNOWN = -1.0


class Figures:
    """The metrics of clusters. What is not so any more, and what was told of a cluster that is gone, goes."""

    def __init__(self, metrics: Metrics, now: Now) -> None:
        self._metrics = metrics
        self._now = now
        self._told: dict[tuple[Key, Gauge], set[str]] = {}
        self._since: dict[tuple[Key, str], float] = {}
        self._counted: set[Key] = set()

    def passed(self, key: Key, passed: Pass | None) -> None:
        """A pass over the cluster ended; None: there is no such cluster."""
        gates = passed.gates if passed is not None else frozenset()
        self._gates(key, gates)
        status = passed.status if passed is not None else {}
        answers = {one["type"]: _ANSWERS.get(one["status"], _UNKNOWN) for one in status.get("conditions", ())}
        self._tell(self._metrics.condition, key, answers)
        self._tell(self._metrics.phase, key, {status["phase"]: 1.0} if status.get("phase") else {})
        if passed is None:
            self._forget(key)
            return
        self._counted.add(key)
        self._metrics.cluster_passes.labels(key.namespace, key.name).inc()
        writes = len(passed.done.actions) + passed.status_written
        self._metrics.cluster_writes.labels(key.namespace, key.name).inc(writes)

    def _gates(self, key: Key, gates: frozenset[str]) -> None:
        for gate in gates:
            self._since.setdefault((key, gate), self._now().timestamp())
        for other in [other for other in self._since if other[0] == key and other[1] not in gates]:
            del self._since[other]
        self._tell(self._metrics.blocked, key, dict.fromkeys(gates, 1.0))
        self._tell(self._metrics.blocked_since, key, {gate: self._since[key, gate] for gate in gates})

    def _tell(self, metric: Gauge, key: Key, values: dict[str, float]) -> None:
        """The values of the cluster, by the last label of the metric."""
        for gone in self._told.pop((key, metric), set()) - values.keys():
            metric.remove(key.namespace, key.name, gone)
        for label, value in values.items():
            metric.labels(key.namespace, key.name, label).set(value)
        if values:
            self._told[key, metric] = set(values)

    def _forget(self, key: Key) -> None:
        if key in self._counted:
            self._counted.discard(key)
            self._metrics.cluster_passes.remove(key.namespace, key.name)
            self._metrics.cluster_writes.remove(key.namespace, key.name)
