"""A cluster that is paused until a time is only told of until then, and goes on by itself."""

from datetime import timedelta

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, with_pool
from simkube import SimKube

BIGGER = with_pool(SMALLEST, replicas=4)


def paused(**annotations):
    kube = SimKube()
    kube.put("orders", SMALLEST)
    converge(kube)
    kube.put(
        "orders",
        BIGGER,
        annotations={f"walrus.dev/{name.replace('_', '-')}": told for name, told in annotations.items()},
    )
    return kube


@pytest.mark.parametrize("until", ["2026-01-01T06:00:00Z", "2026-01-01T07:30:00.5+01:30", "2026-01-01t06:00:00z"])
def test_it_goes_on_once_the_time_has_come(until):
    kube = paused(pause_until=until)
    operator = Operator(kube)
    writes = len(kube.pods())
    operator.once()
    assert (status(kube)["phase"], len(kube.pods())) == ("Paused", writes)
    assert condition(kube, "Ready")["reason"] == "Paused"
    assert until in status(kube)["plan"]["detail"]
    assert status(kube)["readyReplicas"] == 3
    operator.now += timedelta(hours=6)
    operator.once()
    assert kube.step()
    assert len(kube.pods()) == writes + 1


def test_the_status_goes_on_while_it_is_paused_and_is_not_written_again():
    kube = paused(pause_until="2030-01-01T00:00:00Z")
    operator = Operator(kube)
    operator.once()
    kube.remove("Pod", "orders-general-1")
    kube.step()
    operator.once()
    assert {row["state"] for row in status(kube)["brokers"]} != {"Serving"}
    writes = kube.writes
    operator.once()
    assert kube.writes == writes


@pytest.mark.parametrize("until", ["tomorrow", "", "2026-01-01", "2026-01-01T06:00:00", "2026-13-01T06:00:00Z", "6h"])
def test_a_time_that_nobody_can_read_pauses_and_says_how_one_is_written(until):
    kube = paused(pause_until=until)
    operator = Operator(kube)
    operator.now += timedelta(days=3650)
    operator.once()
    assert status(kube)["phase"] == "Paused"
    assert "is no time of RFC 3339" in status(kube)["plan"]["detail"]
    assert "for example 2026-12-24T06:00:00Z" in status(kube)["plan"]["detail"]
    assert len(kube.pods()) == 3


def test_of_both_annotations_the_one_without_an_end_wins():
    kube = paused(pause="moving disks", pause_until="2020-01-01T00:00:00Z")
    converge(kube)
    assert "moving disks" in status(kube)["plan"]["detail"]
    assert len(kube.pods()) == 3


def test_a_time_that_is_over_is_nothing():
    kube = paused(pause_until="2020-01-01T00:00:00Z")
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert len(kube.pods()) == 4
