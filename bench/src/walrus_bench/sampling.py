"""Takes the samples: subjects interleaved round by round, noisy samples repeated within a bound."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from walrus_bench.cpu import CpuReading, others_cores
from walrus_bench.goals import COMPARISONS

QUIET_LOOK_S = 0.5
PROBE, FIO = "probe", "fio"  # systems that are the machine itself

Fact: TypeAlias = float | int | str


class InvalidRunError(Exception):
    """A run not to be believed: a program failed, or what it read back was not what it wrote."""


@dataclass(frozen=True)
class Sample:
    """One measured figure and the facts beside it."""

    value: float
    unit: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    observations: Sequence[float] = ()  # what the figure was made of, where quantiles over all rounds are wanted


@dataclass(frozen=True)
class Subject:
    """Something that is measured once in every round, in the first `rounds_max` of them if it takes long."""

    case: str
    system: str
    backend: str
    measure: Callable[[], Sample]
    quantiles: Mapping[str, float] = field(default_factory=dict)  # cases made of the observations of all its samples
    rounds_max: int | None = None

    @property
    def name(self) -> str:
        """Case, system and backend."""
        return " ".join(part for part in (self.case, self.system, self.backend) if part)

    @property
    def cases(self) -> frozenset[str]:
        """Its case, and those that are made of its samples."""
        compared = (name for name, each in COMPARISONS.items() if self.case in (each.of.case, each.over.case))
        return frozenset({self.case, *self.quantiles, *compared})

    @property
    def is_probe(self) -> bool:
        """Whether it finds a limit of the machine."""
        return self.system in (PROBE, FIO)

    def is_among(self, wanted: Collection[str]) -> bool:
        """Whether it is to be measured where these cases are wanted; none: all. Limits always are."""
        return not wanted or self.is_probe or not self.cases.isdisjoint(wanted)


@dataclass(frozen=True)
class Taken:
    """A sample that was kept, and how much CPU others used meanwhile."""

    sample: Sample
    others_cores: float


@dataclass
class Series:
    """What the rounds gave for one subject of a phase."""

    subject: Subject
    taken: list[Taken] = field(default_factory=list)  # the sample of each round, in their order
    phase: str = ""
    dropped: int = 0  # samples taken again because of noise
    noisy: int = 0  # samples kept although noisy: no quiet one came within the bound


@dataclass
class Gate:
    """Lets a sample pass only when others used little CPU. `patience_s` bounds the time lost in all."""

    read: Callable[[], CpuReading]
    others_cores_max: float = 0.15
    attempts_max: int = 4
    patience_s: float = 300.0
    enabled: bool = True

    def take(self, series: Series) -> None:
        """Adds one sample to `series`: the first quiet one, or the quietest where the bounds allow no more."""
        attempts: list[Taken] = []
        while True:
            if self.enabled:
                self._wait_until_quiet()
            before = self.read()
            sample = series.subject.measure()
            after = self.read()
            attempts.append(Taken(sample, others_cores(before, after)))
            if attempts[-1].others_cores <= self.others_cores_max:
                break
            if not self.enabled or len(attempts) == self.attempts_max or self.patience_s <= 0:
                series.noisy += 1
                break
            self.patience_s -= after.at_s - before.at_s
        series.taken.append(min(attempts, key=lambda taken: taken.others_cores))
        series.dropped += len(attempts) - 1

    def _wait_until_quiet(self) -> None:
        while self.patience_s > 0:
            before = self.read()
            time.sleep(QUIET_LOOK_S)
            after = self.read()
            if others_cores(before, after) <= self.others_cores_max:
                return
            self.patience_s -= after.at_s - before.at_s


def quantile(values: Sequence[float], rank: float) -> float:
    """The nearest-rank quantile, 0 < rank <= 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)]


def take_rounds(subjects: Sequence[Subject], *, phase: str, rounds: int, gate: Gate) -> Iterator[Series]:
    """Measures every subject once per round; yields its series each time, for the caller to show progress."""
    all_series = [Series(subject, phase=phase) for subject in subjects]
    for number in range(rounds):
        for series in all_series:
            if number < rounds_of(series.subject, rounds):
                gate.take(series)
                yield series


def rounds_of(subject: Subject, rounds: int) -> int:
    """In how many of the rounds a subject is measured."""
    return rounds if subject.rounds_max is None else min(rounds, subject.rounds_max)
