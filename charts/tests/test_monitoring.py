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
from expressions import NAME, Labels, UnknownFormError, evaluate, seconds, series, values
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


def fired(test: dict[str, Any], rule: dict[str, Any], until: float) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Labels and annotations of the alerts of a rule that fire at a time, by evaluations each minute up to it."""
    each = seconds(test["interval"])
    samples = {
        series(one["series"]): [
            (place * each, value) for place, value in enumerate(values(one["values"])) if value is not None
        ]
        for one in test["input_series"]
    }
    since: dict[Labels, float] = {}
    for minute in range(int(until // 60) + 1):
        at = minute * 60.0
        active = {frozenset(one for one in labels if one[0] != NAME) for labels in evaluate(rule["expr"], samples, at)}
        since = {labels: since.get(labels, at) for labels in active}
    waits = seconds(rule["for"]) if "for" in rule else 0.0
    return [
        ({**dict(labels), **rule["labels"]}, {name: filled(text, labels) for name, text in rule["annotations"].items()})
        for labels, began in since.items()
        if until - began >= waits
    ]


def filled(text: str, labels: Labels) -> str:
    """A text of a rule with the labels of what fires."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: dict(labels)[found[1]], text)


@pytest.mark.parametrize("test", yaml.safe_load(SAMPLES.read_text())["tests"], ids=lambda test: test["name"])
def test_an_alert_fires_on_its_samples_and_is_silent_on_the_others(test: dict[str, Any]) -> None:
    for told in test["alert_rule_test"]:
        (rule,) = (rule for rule in RULES if rule["alert"] == told["alertname"])
        expected = [(one["exp_labels"], one["exp_annotations"]) for one in told["exp_alerts"]]
        assert fired(test, rule, seconds(told["eval_time"])) == expected


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_that_compares_the_other_way_is_found_by_its_samples(rule: dict[str, Any]) -> None:
    turned = {**rule, "expr": rule["expr"].replace("==", "!=").replace("> ", "<= ")}
    assert turned != rule
    tests = [
        (test, told)
        for test in yaml.safe_load(SAMPLES.read_text())["tests"]
        for told in test["alert_rule_test"]
        if told["alertname"] == rule["alert"]
    ]
    assert any(
        bool(fired(test, turned, seconds(told["eval_time"]))) != bool(told["exp_alerts"]) for test, told in tests
    )


@pytest.mark.parametrize(
    "expression",
    [
        "a > b",
        "a - b",
        "a and b",
        "max(a)",
        "a[5m]",
        "1 > 0",
        "avg by (x) (a)",
        'a{b~"c"}',
        "increase(a)",
        "a or",
        "a )",
    ],
)
def test_a_form_that_the_evaluator_does_not_know_is_no_silence(expression: str) -> None:
    samples = {series('a{b="c"}'): [(0.0, 1.0)], series("b"): [(0.0, 1.0)]}
    with pytest.raises(UnknownFormError):
        evaluate(expression, samples, 0.0)


def test_samples_grow_wait_and_end_as_prometheus_has_them() -> None:
    assert values("1x2 _x2 0+5x2 7") == [1, 1, 1, None, None, 0, 5, 10, 7]
    counter = {series("c"): [(60.0 * place, value) for place, value in enumerate([0.0, 10.0, 20.0, 5.0])]}
    assert evaluate("increase(c[3m]) > 0", counter, 180.0) == {frozenset(): pytest.approx(22.5)}
    assert evaluate("c == 5", counter, 180.0 + 299.0)
    assert not evaluate("c == 5", counter, 180.0 + 300.0)
    assert evaluate("absent(c == 9)", counter, 180.0) == {frozenset(): 1.0}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, which comes with Prometheus")
def test_prometheus_itself_says_the_same_of_the_samples() -> None:
    """No kept library for Python evaluates its language, and our evaluator knows the forms of our rules alone."""
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
