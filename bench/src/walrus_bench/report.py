"""From series of samples to the rows of a report, and the report as JSON."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import truediv
from pathlib import Path
from typing import Any

from walrus_bench.goals import COMPARISONS, GOALS, Compared
from walrus_bench.limits import LimitRow, RoundLimits
from walrus_bench.sampling import Fact, Sample, Series, quantile

OURS = "walrus"  # the system that has to meet the goals


@dataclass(frozen=True)
class Row:
    """One case on one system and backend. Value, limit and ratio are medians over the rounds, the ratio of what each
    round gave to the limit in that round. A case that is a quantile is taken over the observations of all rounds
    together, and so are the smallest and the largest; rare things are held against no limit.
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


def rows(all_series: Sequence[Series]) -> list[Row]:
    """Makes the rows of every case that has a goal."""
    limits = RoundLimits(all_series)
    made: list[Row] = []
    for series in all_series:
        subject = series.subject
        if subject.case in GOALS:
            values = [taken.sample.value for taken in series.taken]
            made.append(_row(series, subject.case, values, statistics.median(values), limits))
        pooled = [each for taken in series.taken for each in taken.sample.observations]
        made += [_row(series, case, pooled, quantile(pooled, rank)) for case, rank in subject.quantiles.items()]
    return [*made, *_comparisons(all_series)]


def _comparisons(all_series: Sequence[Series]) -> Iterator[Row]:
    """The rows of what one subject gives over another one, where both were measured."""
    found = {
        Compared(series.subject.case, series.subject.backend, series.subject.system): series for series in all_series
    }
    for case, compared in COMPARISONS.items():
        series, other = found.get(compared.of), found.get(compared.over)
        if series is not None and other is not None:
            ratios = [a.sample.value / b.sample.value for a, b in zip(series.taken, other.taken, strict=False)]
            yield replace(_row(series, case, ratios, statistics.median(ratios)), facts={})


def _row(series: Series, case: str, values: Sequence[float], value: float, limits: RoundLimits | None = None) -> Row:
    subject, goal = series.subject, GOALS[case]
    beside = [] if limits is None or goal.limit is None else limits.beside(series, goal.limit)
    ratio = statistics.median(map(truediv, values, beside)) if beside else None
    return Row(
        case=case,
        system=subject.system,
        backend=subject.backend,
        value=value,
        unit=goal.unit,
        limit=statistics.median(beside) if beside else None,
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
