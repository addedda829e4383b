"""Alerts name guides and fire on recorded samples, dashboards and alerts ask for metrics that are there."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import DOCS
from rendering import Helm, Rendered

ROOT = DOCS.parent
ALERTS = ROOT / "charts/walrus-operator/alerts.yaml"
DASHBOARDS = sorted((ROOT / "charts/walrus-operator/files/dashboards").glob("*.json"))
SAMPLES = Path(__file__).parent / "data/alerts.yaml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
EVERYTHING = {"podMonitors": True, "rules": True, "dashboards": True, "labels": {"release": "prometheus"}}
_PARTS = ("_total", "_bucket", "_sum", "_count")


def operator(helm: Helm, **values: Any) -> Rendered:
    return helm.render("walrus-operator", values, release="walrus-operator", namespace="walrus-system")


def known_metrics() -> set[str]:
    """Metrics that the reference names, as they are called there."""
    page = (DOCS / "reference/metrics.md").read_text()
    return {"process_resident_memory_bytes", *re.findall(r"^\| `(walrus_\w+)`", page, re.MULTILINE)}


def asked(expression: str) -> set[str]:
    """Metrics that an expression asks for, as the reference calls them."""
    found = set(re.findall(r"\b((?:walrus|process)_[a-z_]+)", re.sub(r"\{[^}]*\}", "", expression)))
    known = known_metrics()
    bare = {name: next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name) for name in found}
    return {name if name in known else bare[name] for name in found}


def expressions(dashboard: Path) -> list[str]:
    told = json.loads(dashboard.read_text())
    queries = [one["query"] for one in told["templating"]["list"] if one["type"] == "query"]
    return [*queries, *(target["expr"] for panel in told["panels"] for target in panel["targets"])]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_asks_for_metrics_that_are_there_and_names_its_chapter(rule: dict[str, Any]) -> None:
    assert asked(rule["expr"])
    assert asked(rule["expr"]) <= known_metrics()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    page, _, chapter = rule["annotations"]["guide"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert chapter == rule["alert"].lower()
    assert rule["alert"] in headings


def test_the_guide_has_a_chapter_for_each_alert_and_no_other() -> None:
    headings = re.findall(r"^## (\w+)$", (DOCS / "guides/alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_every_dashboard_asks_for_metrics_that_are_there(dashboard: Path) -> None:
    for expression in expressions(dashboard):
        assert asked(expression), expression
        assert asked(expression) <= known_metrics(), expression
    panels = json.loads(dashboard.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_for_every_alert_there_are_samples_on_which_it_fires_and_such_on_which_it_is_silent() -> None:
    expected: dict[str, list[bool]] = {}
    for test in yaml.safe_load(SAMPLES.read_text())["tests"]:
        for told in test["alert_rule_test"]:
            expected.setdefault(told["alertname"], []).append(bool(told["exp_alerts"]))
    assert expected == {rule["alert"]: [True, False] for rule in RULES}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, which comes with Prometheus")
def test_every_alert_fires_on_its_samples() -> None:
    """Only Prometheus' own evaluator says so: no kept library for Python evaluates its language."""
    for command in (["check", "rules", str(ALERTS)], ["test", "rules", str(SAMPLES)]):
        done = subprocess.run(
            ["promtool", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_nothing_of_monitoring_is_there_unless_a_value_asks_for_it(helm: Helm) -> None:
    kinds = {"PodMonitor", "PrometheusRule", "ConfigMap"}
    assert kinds.isdisjoint(one["kind"] for one in operator(helm).manifests)
    for value, kind in (("podMonitors", "PodMonitor"), ("rules", "PrometheusRule"), ("dashboards", "ConfigMap")):
        made = operator(helm, monitoring={value: True}).manifests
        assert {one["kind"] for one in made} & kinds == {kind}


def test_what_is_monitored_bears_the_labels_by_which_prometheus_selects_it(helm: Helm) -> None:
    made = operator(helm, monitoring=EVERYTHING).manifests
    found = [one for one in made if one["kind"] in ("PodMonitor", "PrometheusRule", "ConfigMap")]
    assert len(found) == 2 + 1 + len(DASHBOARDS)
    assert all(one["metadata"]["labels"]["release"] == "prometheus" for one in found)


def test_brokers_are_looked_for_where_clusters_are_looked_after(helm: Helm) -> None:
    def places(**watch: Any) -> Any:
        made = operator(helm, monitoring=EVERYTHING, watch=watch).manifests
        (brokers,) = (one for one in made if one["metadata"]["name"] == "walrus-operator-brokers")
        return brokers["spec"]["namespaceSelector"]

    assert places(namespaces=["shop"]) == {"matchNames": ["walrus-system", "shop"]}
    assert places(all=True) == {"any": True}


def test_the_rule_of_the_chart_is_the_file_that_is_tested(helm: Helm) -> None:
    rendered = operator(helm, monitoring=EVERYTHING)
    assert rendered.one("PrometheusRule")["spec"] == yaml.safe_load(ALERTS.read_text())
