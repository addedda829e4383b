"""What the operator tells of clusters and of itself: metrics, lines of the log, the definition that it found."""

import asyncio
import json
import logging
import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from driving import KEY, Operator
from examples import SMALLEST, changed
from operating import World
from simkube import SimKube
from virtual import run, until
from walrus_operator.api.crdgen import crd
from walrus_operator.kube.api import Denied
from walrus_operator.objects import DEFINITION, Ref
from walrus_operator.runtime.definition import compare_definition, difference
from walrus_operator.runtime.figures import Figures
from walrus_operator.runtime.logs import formatter
from walrus_operator.runtime.metrics import Metrics

OF_ORDERS = {"namespace": "shop", "cluster": "orders"}


class Told:
    """A cluster, an operator, and the metrics that they come to."""

    def __init__(self):
        self.kube, self.metrics = SimKube(), Metrics()
        self.kube.put("orders", SMALLEST)
        self.operator = Operator(self.kube)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.figures = Figures(self.metrics, lambda: self.now)

    def passes(self, number=30):
        for _ in range(number):
            self.figures.passed(KEY, self.operator.once())
            self.kube.step()

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"walrus_operator_{name}", OF_ORDERS | labels)

    def labels(self, name):
        found = next(one for one in self.metrics.registry.collect() if one.name == f"walrus_operator_{name}")
        return [sample.labels for sample in found.samples]


def test_conditions_and_phase_of_a_cluster_are_metrics():
    told = Told()
    told.passes(1)
    assert told.value("cluster_condition", condition="Available") == 0
    assert told.value("cluster_condition", condition="Replicated") == -1
    told.passes()
    assert (
        told.value("cluster_condition", condition="Ready")
        == told.value("cluster_condition", condition="Available")
        == 1
    )
    assert [one["phase"] for one in told.labels("cluster_phase")] == ["Running"]


def test_a_cluster_at_rest_has_passes_and_no_writes():
    told = Told()
    told.passes()
    writes, passes = told.value("cluster_writes_total"), told.value("cluster_passes_total")
    assert writes > 5
    told.passes(5)
    assert (told.value("cluster_writes_total"), told.value("cluster_passes_total")) == (writes, passes + 5)


def test_a_gate_has_an_age_as_long_as_it_is_closed():
    told = Told()
    told.passes()
    told.kube.behind.add("orders-general-2")
    told.kube.put("orders", changed(SMALLEST, version="2.0.0"))
    told.passes(20)
    since = told.value("blocked_since_timestamp_seconds", gate="NotCaughtUp")
    told.now += timedelta(hours=1)
    told.passes(1)
    assert told.value("blocked_since_timestamp_seconds", gate="NotCaughtUp") == since
    told.kube.behind.clear()
    told.passes()
    assert told.labels("blocked") == told.labels("blocked_since_timestamp_seconds") == []


def test_nothing_is_told_of_a_cluster_that_is_gone():
    told = Told()
    told.passes()
    told.kube.remove("WalrusCluster", "orders")
    told.passes(3)
    for name in ("cluster_condition", "cluster_phase", "blocked", "cluster_writes", "cluster_passes"):
        assert told.labels(name) == []


def test_an_operator_that_stands_by_is_healthy_and_shows_that_it_does_not_hold_the_lease():
    """Standbys that were not ready would let `helm install --wait` wait for ever."""

    async def story():
        async with World().moving() as world:
            first = world.start("one")
            await until(lambda: holds(first), 30)
            second = world.start("two")
            await asyncio.sleep(600)
            assert second.health.troubles() == []
            assert (holds(first), holds(second)) == (1, 0)

    run(story())


def holds(operator):
    return operator.metrics.registry.get_sample_value("walrus_operator_holds_lease")


def test_a_line_of_json_has_time_level_logger_message_and_a_traceback_within():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        fault = (type(error), error, error.__traceback__)
    record = logging.LogRecord("walrus_operator.x", logging.ERROR, "x.py", 1, "%s: %d", ("shop/orders", 3), fault)
    text = formatter("json").format(record)
    told = json.loads(text)
    assert "\n" not in text
    assert (told["level"], told["logger"], told["message"]) == ("ERROR", "walrus_operator.x", "shop/orders: 3")
    assert "two\nlines" in told["exc_info"]
    assert told["time"]


def test_the_definition_of_this_release_is_fine():
    assert difference(crd(), crd()) is None


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (None, "is not there"),
        ("older", r"is older than this operator, and drops spec.hibernate, spec.pools\[\].labels: apply"),
        ("newer", r"is newer than this operator, which does not know spec.backup: upgrade the operator"),
    ],
)
def test_a_definition_of_another_release_is_told_at_the_start(there, says, caplog):
    kube, metrics = SimKube(), Metrics()
    found = deepcopy(crd())
    fields = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    if there == "older":
        del fields["hibernate"], fields["pools"]["items"]["properties"]["labels"]
    if there == "newer":
        fields["backup"] = {"type": "string"}
    if there is not None:
        kube.objects[Ref(DEFINITION.name, "", found["metadata"]["name"])] = found
    with caplog.at_level(logging.WARNING):
        asyncio.run(compare_definition(kube, metrics))
    (line,) = (record.message for record in caplog.records)
    assert metrics.registry.get_sample_value("walrus_operator_definition_differs") == 1
    assert re.search(says, line)


def test_an_operator_that_may_not_look_at_the_definition_goes_on(caplog):
    class Closed(SimKube):
        async def get(self, _):
            raise Denied("no")

    with caplog.at_level(logging.INFO):
        asyncio.run(compare_definition(Closed(), Metrics()))
    assert "is not compared with this release: no" in caplog.text
