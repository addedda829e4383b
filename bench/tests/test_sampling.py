"""Rounds and the load gate."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from walrus_bench.cpu import CpuReading
from walrus_bench.sampling import PROBE, Gate, InvalidRunError, Sample, Series, Subject, quantile, take_rounds


def readings(others: Sequence[float]) -> Callable[[], CpuReading]:
    """Pairs of readings a second apart, with so much CPU used by others in between."""

    def pairs() -> Iterator[CpuReading]:
        at, machine = 0.0, 0.0
        for cores in others:
            yield CpuReading(at_s=at, machine_s=machine, own_s=0.0, kernel_s=0.0)
            at, machine = at + 1.0, machine + cores
            yield CpuReading(at_s=at, machine_s=machine, own_s=0.0, kernel_s=0.0)

    return pairs().__next__


def numbered(values: Sequence[float]) -> Subject:
    answers = iter(values)
    return Subject("case", "walrus", "direct", lambda: Sample(next(answers), "records/s"))


def test_cases_are_chosen_by_name_and_limits_are_always_measured() -> None:
    def subject(case: str, system: str = "walrus", **quantiles: float) -> Subject:
        return Subject(case, system, "", lambda: Sample(1.0, "s"), quantiles)

    kills = subject("kill_to_ack", kill_to_ack_p50=0.5)
    subjects = [subject("durable_4k", PROBE), subject("catch_up"), kills]
    assert [chosen.is_among({"catch_up"}) for chosen in subjects] == [True, True, False]
    assert [chosen.is_among({"kill_to_ack_p50"}) for chosen in subjects] == [True, False, True]
    assert all(chosen.is_among(()) for chosen in subjects)


def test_a_noisy_sample_is_dropped_and_taken_again() -> None:
    gate = Gate(readings([0.0, 0.9, 0.0, 0.1]))  # a quiet look comes before each attempt
    series = Series(numbered([1.0, 2.0]))
    gate.take(series)
    assert [taken.sample.value for taken in series.taken] == [2.0]
    assert (series.dropped, series.noisy) == (1, 0)


def test_when_no_sample_is_quiet_the_quietest_is_kept_and_counted_as_noisy() -> None:
    gate = Gate(readings([0.0, 0.9, 0.0, 0.4, 0.0, 0.6]), attempts_max=3)
    series = Series(numbered([1.0, 2.0, 3.0]))
    gate.take(series)
    assert [taken.sample.value for taken in series.taken] == [2.0]
    assert (series.dropped, series.noisy) == (2, 1)


def test_lost_patience_ends_waiting_and_repeating() -> None:
    gate = Gate(readings([0.9, 0.9, 0.9]), patience_s=2.0)  # two looks that find noise, then one attempt
    series = Series(numbered([1.0]))
    gate.take(series)
    assert (series.dropped, series.noisy) == (0, 1)


def test_without_the_gate_nothing_is_repeated_and_noise_is_still_counted() -> None:
    gate = Gate(readings([0.9, 0.0]), enabled=False)
    series = Series(numbered([1.0, 2.0]))
    gate.take(series)
    gate.take(series)
    assert len(series.taken) == 2
    assert (series.dropped, series.noisy) == (0, 1)


def test_subjects_are_interleaved() -> None:
    order: list[str] = []

    def subject(name: str) -> Subject:
        def measure() -> Sample:
            order.append(name)
            return Sample(1.0, "us")

        return Subject(name, "walrus", "", measure)

    list(take_rounds([subject("a"), subject("b")], phase="", rounds=3, gate=Gate(readings([0.0] * 6), enabled=False)))
    assert order == ["a", "b"] * 3


def test_a_subject_that_takes_long_is_measured_in_some_rounds_only() -> None:
    order: list[str] = []

    def subject(name: str, rounds_max: int | None) -> Subject:
        def measure() -> Sample:
            order.append(name)
            return Sample(1.0, "us")

        return Subject(name, "walrus", "", measure, rounds_max=rounds_max)

    subjects = [subject("long", 1), subject("short", None)]
    list(take_rounds(subjects, phase="", rounds=3, gate=Gate(readings([0.0] * 4), enabled=False)))
    assert order == ["long", "short", "short", "short"]


@pytest.mark.parametrize(("rank", "expected"), [(0.5, 2.0), (0.99, 4.0), (0.01, 1.0)])
def test_a_quantile_is_one_of_the_values(rank: float, expected: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], rank) == expected


def test_an_invalid_run_ends_the_rounds() -> None:
    def fail() -> Sample:
        raise InvalidRunError("record 7 read back differs")

    gate = Gate(readings([0.0]), enabled=False)
    with pytest.raises(InvalidRunError, match="record 7"):
        list(take_rounds([Subject("a", "walrus", "", fail)], phase="", rounds=2, gate=gate))
