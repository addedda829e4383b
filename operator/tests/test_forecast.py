"""When a disk will be full is told after a while of looking at it, and written rarely."""

from datetime import datetime, timedelta

from driving import Operator, status
from resizing import fill, started
from walrus_operator.cli.told import explained
from walrus_operator.objects import Ref
from walrus_operator.status.writing import Writing


def clocked(kube):
    """An operator whose clocks show the same time."""
    operator = Operator(kube)
    operator.reconciler._monotonic = lambda: operator.now.timestamp()
    return operator


def minutes(operator, number, used=str):
    """The operator makes so many passes, a minute apart."""
    for minute in range(number):
        used(minute)
        operator.now += timedelta(minutes=1)
        operator.once()


def full_at(kube):
    return {row["pod"]: row.get("diskFullAt") for row in status(kube)["brokers"]}


def test_when_a_disk_is_full_is_told_after_a_while_and_written_rarely():
    kube = started()
    fill(kube, "orders-general-1", 10)
    operator = clocked(kube)
    operator.once()
    minutes(operator, 5, lambda minute: fill(kube, "orders-general-1", 10 + minute))
    assert set(full_at(kube).values()) == {None}
    written = []
    for minute in range(5, 30):
        fill(kube, "orders-general-1", 10 + minute)
        minutes(operator, 1)
        written.append(full_at(kube)["orders-general-1"])
    assert written[-1] is not None
    left = datetime.fromisoformat(written[-1]) - operator.now
    assert timedelta(minutes=50) <= left <= timedelta(minutes=75)
    assert len(set(written[-10:])) == 1
    assert full_at(kube)["orders-general-0"] is None
    found = kube.objects[Ref("WalrusCluster", "shop", "orders")]
    assert any(f"The disk of orders-general-1 is full at {written[-1]}" in line for line in explained(found))
    minutes(operator, 6 * 60)
    assert full_at(kube)["orders-general-1"] is None


def test_a_forecast_that_moves_is_written_once_a_minute_at_most():
    before = {"brokers": [{"pod": "a", "diskFullAt": "2026-01-01T00:00:00Z"}]}
    after = {"brokers": [{"pod": "a", "diskFullAt": "2026-01-02T00:00:00Z"}]}
    writing = Writing()
    writing.wrote("uid", before, before, 0.0)
    assert writing.due_s("uid", before, after, 10.0) == 50.0


def test_an_operator_that_comes_up_keeps_the_forecast_of_the_one_before():
    kube = started()
    operator = clocked(kube)
    minutes(operator, 30, lambda minute: fill(kube, "orders-general-1", minute))
    told_before = full_at(kube)["orders-general-1"]
    assert told_before is not None
    Operator(kube).once()
    assert full_at(kube)["orders-general-1"] == told_before
