"""The limits of the machine as the probes found them: for the reader, and beside each sample."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from walrus_bench.goals import PROBED_LIMITS, known_limits
from walrus_bench.sampling import FIO, PROBE, Sample, Series, Taken

FIO_AGREEMENT_MIN = 0.95


@dataclass(frozen=True)
class LimitRow:
    """One limit of the machine as the probe found it, and as fio did with the same parameters."""

    limit: str
    value: float
    unit: str
    minimum: float
    maximum: float
    fio: float | None
    probe_to_fio: float | None
    agrees: (
        bool | None
    )  # the probe reaches at least 0.95 of fio; None where fio measures nothing like it, or is missing


def limit_rows(all_series: Iterable[Series]) -> list[LimitRow]:
    """Finds the limits that these series measured: medians over all rounds of all phases."""
    by_case: defaultdict[tuple[str, str], list[Taken]] = defaultdict(list)  # what was taken in all phases
    for series in all_series:
        by_case[series.subject.case, series.subject.system] += series.taken
    rows = []
    for name, limit in PROBED_LIMITS.items():
        if not (by_probe := by_case[limit.probe, PROBE]):
            continue
        values = [_figure(taken.sample, limit.fact) for taken in by_probe]
        value = statistics.median(values)
        fio = None
        if by_fio := by_case[limit.probe, FIO]:
            fio = statistics.median(_figure(taken.sample, limit.fact) for taken in by_fio)
        # a rate must be as high as fio's, a time as low
        agreement = None if fio is None else (fio / value if limit.unit == "us" else value / fio)
        rows.append(
            LimitRow(
                limit=name,
                value=value,
                unit=limit.unit,
                minimum=min(values),
                maximum=max(values),
                fio=fio,
                probe_to_fio=agreement,
                agrees=None if agreement is None else agreement >= FIO_AGREEMENT_MIN,
            )
        )
    return rows


class RoundLimits:
    """The limits beside each sample: as probed in its round, or in the whole run where its phase does not probe them.

    A disk that others share is not the same from one minute to the next. What is held against it must be held against
    what it was then.
    """

    def __init__(self, all_series: Sequence[Series]) -> None:
        """Takes them from what the probes among these series found."""
        self._whole_run = {row.limit: row.value for row in limit_rows(all_series)}
        self._rounds: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
        for series in all_series:
            if series.subject.system == PROBE:
                for number, taken in enumerate(series.taken):
                    self._rounds[series.phase, number] |= _found(series.subject.case, taken.sample)

    def beside(self, series: Series, limit: str) -> list[float]:
        """The limit in the round of each sample of `series`; empty where nothing probed it."""
        rounds = [
            known_limits({**self._whole_run, **self._rounds.get((series.phase, number), {})})
            for number in range(len(series.taken))
        ]
        return [known[limit] for known in rounds if limit in known]


def _found(probe: str, sample: Sample) -> Mapping[str, float]:
    return {name: _figure(sample, limit.fact) for name, limit in PROBED_LIMITS.items() if limit.probe == probe}


def _figure(sample: Sample, fact: str | None) -> float:
    figure = sample.value if fact is None else sample.facts[fact]
    return float(figure)
