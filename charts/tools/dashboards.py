"""Dashboards for Grafana, from tables of their panels: a title, queries with what they are called, a unit. Pure."""

import json
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """Lines over time."""

    title: str
    queries: dict[str, str]
    """Expressions, by the legend of their lines."""
    unit: str = "short"


@dataclass(frozen=True)
class Dashboard:
    """Panels, two beside each other, and variables by which they are narrowed."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: dict[str, str]
    """Queries for the values of variables."""


_CLUSTER = 'namespace=~"$namespace",cluster=~"$cluster"'
_BROKER = f'{_CLUSTER},pod=~"$pod"'
_NAMED = "{{namespace}}/{{cluster}}"


def _slowest(metric: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, pod) (rate({metric}_bucket{{{_BROKER}}}[5m])))"


def _operators_slowest(metric: str) -> str:
    return f"histogram_quantile(0.99, sum by (le) (rate({metric}_bucket[5m])))"


CLUSTERS = Dashboard(
    "clusters",
    "Walrus: clusters",
    (
        Panel(
            "Conditions: 1 true, 0 false, -1 unknown",
            {f"{_NAMED} {{{{condition}}}}": f"walrus_operator_cluster_condition{{{_CLUSTER}}}"},
        ),
        Panel("Phase", {f"{_NAMED} {{{{phase}}}}": f"walrus_operator_cluster_phase{{{_CLUSTER}}}"}),
        Panel(
            "Age of closed gates",
            {f"{_NAMED} {{{{gate}}}}": f"time() - walrus_operator_blocked_since_timestamp_seconds{{{_CLUSTER}}}"},
            "s",
        ),
        Panel("Brokers that serve", {_NAMED: f"sum by (namespace, cluster) (walrus_node_ready{{{_CLUSTER}}})"}),
        Panel(
            "Appended",
            {_NAMED: f"sum by (namespace, cluster) (rate(walrus_append_bytes_total{{{_CLUSTER}}}[5m]))"},
            "Bps",
        ),
        Panel(
            "Read", {_NAMED: f"sum by (namespace, cluster) (rate(walrus_read_bytes_total{{{_CLUSTER}}}[5m]))"}, "Bps"
        ),
        Panel(
            "Sealed segments that lack copies",
            {_NAMED: f"max by (namespace, cluster) (walrus_cluster_copies_under_replicated{{{_CLUSTER}}})"},
        ),
        Panel(
            "Copies being made",
            {_NAMED: f"max by (namespace, cluster) (walrus_cluster_copies_moving{{{_CLUSTER}}})"},
        ),
    ),
    {
        "namespace": "label_values(walrus_operator_cluster_condition, namespace)",
        "cluster": 'label_values(walrus_operator_cluster_condition{namespace=~"$namespace"}, cluster)',
    },
)

BROKERS = Dashboard(
    "brokers",
    "Walrus: brokers",
    (
        Panel("Serves", {"{{pod}}": f"walrus_node_ready{{{_BROKER}}}"}),
        Panel("Leads the metadata", {"{{pod}}": f"walrus_metadata_leader{{{_BROKER}}}"}),
        Panel("Batches acknowledged", {"{{pod}}": f"rate(walrus_appends_total{{{_BROKER}}}[5m])"}, "ops"),
        Panel("Time of an append, 99 %", {"{{pod}}": _slowest("walrus_append_latency_seconds")}, "s"),
        Panel("Pause of a roll, 99 %", {"{{pod}}": _slowest("walrus_roll_pause_seconds")}, "s"),
        Panel("Time of a failover, 99 %", {"{{pod}}": _slowest("walrus_failover_seconds")}, "s"),
        Panel("Requests and answers held", {"{{pod}}": f"walrus_held_bytes{{{_BROKER}}}"}, "bytes"),
        Panel("Memory", {"{{pod}}": f"process_resident_memory_bytes{{{_BROKER}}}"}, "bytes"),
        Panel(
            "Copies",
            {
                "{{pod}} being made": f"walrus_copies_filling{{{_BROKER}}}",
                "{{pod}} not whole": f"walrus_copies_not_whole{{{_BROKER}}}",
                "{{pod}} damaged": f"walrus_copies_damaged{{{_BROKER}}}",
            },
        ),
        Panel("Copied for want of others", {"{{pod}}": f"rate(walrus_copied_bytes_total{{{_BROKER}}}[5m])"}, "Bps"),
    ),
    {
        "namespace": "label_values(walrus_node_ready, namespace)",
        "cluster": 'label_values(walrus_node_ready{namespace=~"$namespace"}, cluster)',
        "pod": 'label_values(walrus_node_ready{namespace=~"$namespace",cluster=~"$cluster"}, pod)',
    },
)

OPERATOR = Dashboard(
    "operator",
    "Walrus: operator",
    (
        Panel("Holds the lease", {"{{pod}}": "walrus_operator_holds_lease"}),
        Panel("Passes", {"{{outcome}}": "sum by (outcome) (rate(walrus_operator_passes_total[5m]))"}, "ops"),
        Panel("Time of a pass, 99 %", {"passes": _operators_slowest("walrus_operator_pass_seconds")}, "s"),
        Panel(
            "Writes per pass",
            {
                _NAMED: "rate(walrus_operator_cluster_writes_total[10m])"
                " / rate(walrus_operator_cluster_passes_total[10m])"
            },
        ),
        Panel("What was done", {"{{action}}": "sum by (action) (rate(walrus_operator_actions_total[5m]))"}, "ops"),
        Panel(
            "Calls to Kubernetes",
            {"{{verb}} {{outcome}}": ("sum by (verb, outcome) (rate(walrus_operator_kubernetes_calls_total[5m]))")},
            "ops",
        ),
        Panel(
            "Renewal of the lease, 99 %", {"renewals": _operators_slowest("walrus_operator_lease_renewal_seconds")}, "s"
        ),
        Panel(
            "Namespaces",
            {
                "{{namespace}} closed": "walrus_operator_namespace_closed",
                "{{namespace}} deaf": "walrus_operator_namespace_deaf",
            },
        ),
    ),
    {},
)

DASHBOARDS = (CLUSTERS, BROKERS, OPERATOR)


def rendered(dashboard: Dashboard) -> str:
    """The dashboard as Grafana reads it."""
    chosen = [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
    made = {
        "uid": f"walrus-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["walrus"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [*chosen, *(_variable(*one) for one in dashboard.variables.items())]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(made, indent=1) + "\n"


def _variable(name: str, query: str) -> dict[str, Any]:
    several = {"refresh": 2, "includeAll": True, "multi": True}
    return {"name": name, "type": "query", "datasource": _SOURCE, "query": query, **several}


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
