"""What is made of loads on three copies and on one."""

from collections.abc import Iterator

import pytest
from walrus_bench.goals import GOALS
from walrus_bench.sampling import Sample
from walrus_bench.suites.replicated import Streams, one_in_flight


class FakeLoad:
    """Answers one figure after the other."""

    def __init__(self, *values: float, **facts: float) -> None:
        self._values: Iterator[float] = iter(values)
        self._facts = facts

    def run(self, _case: str, *_options: str | int) -> Sample:
        return Sample(next(self._values), "records/s", self._facts)


def test_three_copies_are_held_against_one_in_the_same_round():
    streams = Streams(FakeLoad(50.0, 90.0), FakeLoad(200.0, 100.0))
    assert [streams.replicated().value, streams.over_single().value] == [50.0, 0.25]
    assert [streams.replicated().value, streams.over_single().value] == [90.0, 0.9]


def test_three_copies_are_measured_where_only_the_ratio_is_wanted():
    assert Streams(FakeLoad(50.0), FakeLoad(200.0)).over_single().value == 0.25


def test_one_in_flight_is_judged_by_its_median_time():
    sample = one_in_flight(FakeLoad(3_000.0, p50_us=310.0, p99_us=900.0))
    assert (sample.value, sample.unit) == (310.0, "us")
    assert sample.facts["p99_us"] == 900.0


@pytest.mark.parametrize(
    ("case", "value", "ratio", "met"),
    [
        ("kill_to_ack_p50", 0.7, None, True),
        ("silent_host_p99", 4.1, None, False),
        ("planned_roll_pause_p99", 50.0, None, True),
        ("replicated_append", 99_999.0, None, False),
        ("replicated_append_p50", 400.0, 4.0, True),
        ("replicated_over_single", 0.29, None, False),
        ("catch_up", 200.0, None, True),
        ("metadata_commit_p50", 50.0, None, True),
        ("idle_cpu", 8.1, None, False),
    ],
)
def test_the_goals_of_replication(case, value, ratio, met):
    assert GOALS[case].is_met(value=value, ratio=ratio) is met
