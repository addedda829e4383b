"""What the suite of Kafka's protocol asks of its load generator, and makes of the answers."""

import pytest
from walrus_bench.goals import GOALS
from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites.disk import Disk
from walrus_bench.suites.kafka import beside_a_tail
from walrus_bench.suites.raw_kafka import RawKafka, p50


class FakeRaw(RawKafka):
    """Answers one figure after the other, and keeps what it was asked for."""

    def __init__(self, system: str, *values: float) -> None:
        disk = Disk(lambda: 0)
        pids = [(1, 7)]
        super().__init__(system, "127.0.0.1:9092", lambda: pids, 1.0, disk, program=None, numbers=iter(range(100)))
        object.__setattr__(self, "values", iter(values))
        object.__setattr__(self, "asked", [])

    def on_topic(self, case: str, topic: str, *options: str | int) -> Sample:
        self.asked.append((case, topic, *options))
        return Sample(next(self.values), "records/s")


@pytest.mark.parametrize(
    ("system", "durable", "unsynced"),
    [("walrus", (), ("--config", "walrus.fsync=never")), ("apache", ("--config", "flush.messages=1"), ())],
)
def test_both_systems_are_told_to_sync_or_not(system, durable, unsynced):
    raw = FakeRaw(system, 1.0, 2.0)
    raw.durable("produce", "--producers", 4)
    raw.unsynced("produce")
    assert raw.asked == [("produce", "produce-0", *durable, "--producers", 4), ("produce", "produce-1", *unsynced)]


def test_a_tail_is_judged_by_what_is_produced_beside_it():
    raw = FakeRaw("walrus", 200.0, 150.0)
    assert beside_a_tail(raw).value == 0.75
    assert [case for case, *_ in raw.asked] == ["produce", "produce_tailed"]


def test_one_in_flight_is_judged_by_its_median_time():
    assert p50(Sample(9_000.0, "records/s", {"p50_us": 110.0})).value == 110.0


@pytest.mark.parametrize(
    ("case", "value", "ratio", "met"),
    [
        ("kafka_produce_over_grpc", 1.09, None, False),
        ("kafka_produce_16k", 250_000, None, True),
        ("kafka_produce_p50", 130.0, 1.3, True),
        ("kafka_fetch", 3_000.0, 0.49, False),
        ("kafka_e2e_p99", 3_001.0, None, False),
        ("idle_connections", 12.0, None, True),
        ("metadata_10k_beside", 0.89, None, False),
    ],
)
def test_the_goals_of_kafkas_protocol(case, value, ratio, met):
    assert GOALS[case].is_met(value=value, ratio=ratio) is met


def test_one_case_brings_what_it_is_compared_with():
    theirs = Subject("broker_append_durable", "walrus", "auto", lambda: Sample(0.0, ""))
    assert theirs.is_among({"kafka_produce_over_grpc"})
