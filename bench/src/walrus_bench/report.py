"""From series of samples to the rows of a report, and the report as JSON."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from walrus_bench.goals import GOALS, PROBED_LIMITS, known_limits
from walrus_bench.sampling import FIO, PROBE, Fact, Sample, Series, Taken, quantile

OURS = "walrus"  # the system that has to meet the goals
FIO_AGREEMENT_MIN = 0.95


@dataclass(frozen=True)
class Row:
    """One case on one system and backend. Limit and value are medians over the rounds; a case that is a quantile is
    taken over the observations of all rounds together, and so are the smallest and the largest.
    """

    case: str
    system: str
    backend: str
    value: float
    unit: str
    limit: float | None
    ratio: float | None
    goal: str
    met: bool
    minimum: float
    maximum: float
    rounds: int
    noisy: int
    facts: Mapping[str, Fact]


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


@dataclass(frozen=True)
class Report:
    """Everything that one run of a suite found."""

    suite: str
    taken_at: str
    quick: bool
    commit: str | None
    machine: Mapping[str, Fact]
    settings: Mapping[str, Fact]
    load: Mapping[str, Fact]
    notes: Sequence[str]
    limits: Sequence[LimitRow]
    rows: Sequence[Row]

    @property
    def cases_met(self) -> dict[str, bool]:
        """The best backend counts: a case with a goal is met when one of our rows is."""
        met: dict[str, bool] = {}
        for row in self.rows:
            if row.system != OURS or not row.goal:
                continue
            met[row.case] = met.get(row.case, False) or row.met
        return met

    def as_json(self) -> str:
        """Encodes the report; its `rows` are what other programs read."""
        document: dict[str, Any] = asdict(self)
        document["cases_met"] = self.cases_met
        return json.dumps(document, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Replaces the file whole, so that a reader never meets half a report."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(self.as_json())
        unfinished.replace(path)


def limit_rows(all_series: Iterable[Series]) -> list[LimitRow]:
    """Finds the limits that these series measured."""
    by_case: defaultdict[tuple[str, str], list[Taken]] = defaultdict(list)  # of all phases
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


def rows(all_series: Iterable[Series], limits: Iterable[LimitRow]) -> list[Row]:
    """Makes the rows of every case that has a goal."""
    known = known_limits({row.limit: row.value for row in limits})
    made: list[Row] = []
    for series in all_series:
        subject = series.subject
        if subject.case in GOALS:
            values = [taken.sample.value for taken in series.taken]
            made.append(_row(series, subject.case, values, statistics.median(values), known))
        pooled = [each for taken in series.taken for each in taken.sample.observations]
        made += [_row(series, case, pooled, quantile(pooled, rank), known) for case, rank in subject.quantiles.items()]
    return made


def _row(series: Series, case: str, values: Sequence[float], value: float, limits: Mapping[str, float]) -> Row:
    subject, goal = series.subject, GOALS[case]
    limit = None if goal.limit is None else limits.get(goal.limit)
    ratio = None if not limit else value / limit
    return Row(
        case=case,
        system=subject.system,
        backend=subject.backend,
        value=value,
        unit=goal.unit,
        limit=limit,
        ratio=ratio,
        goal=str(goal),
        met=goal.is_met(value=value, ratio=ratio),
        minimum=min(values),
        maximum=max(values),
        rounds=len(series.taken),
        noisy=series.noisy,
        facts=middle_facts([taken.sample for taken in series.taken]),
    )


def middle_facts(samples: Sequence[Sample]) -> dict[str, Fact]:
    """For each fact the median of its numbers, or the last of its texts."""
    middle: dict[str, Fact] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample.facts):
        facts = [sample.facts[name] for sample in samples if name in sample.facts]
        numbers = [fact for fact in facts if not isinstance(fact, str)]
        middle[name] = statistics.median(numbers) if numbers else facts[-1]
    return middle


def load_facts(all_series: Sequence[Series]) -> dict[str, Fact]:
    """How noisy the machine was."""
    others = [taken.others_cores for series in all_series for taken in series.taken]
    return {
        "others_cores_median": round(statistics.median(others), 3),
        "others_cores_max": round(max(others), 3),
        "samples": len(others),
        "dropped": sum(series.dropped for series in all_series),
        "noisy": sum(series.noisy for series in all_series),
    }


def _figure(sample: Sample, fact: str | None) -> float:
    figure = sample.value if fact is None else sample.facts[fact]
    return float(figure)
