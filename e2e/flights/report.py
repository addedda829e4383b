"""What a run did: for the reader a table, for programs `summary.json`."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flights.proof import Finding
from flights.stream import Crash


@dataclass(frozen=True)
class Phase:
    """A part of the run; `bytes` are those of the records' keys and values that went through it."""

    name: str
    seconds: float
    bytes: int = 0

    @property
    def megabytes_per_second(self) -> float | None:
        """In units of 10^6, None where no data went through."""
        return self.bytes / 1e6 / self.seconds if self.bytes else None


@dataclass(frozen=True)
class Stopwatch:
    """The phases so far, in order."""

    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[list[int]]:
        """Times what is done within; what it adds to the list are the bytes that went through."""
        began = time.monotonic()
        sizes: list[int] = []
        yield sizes
        self.phases.append(Phase(name, time.monotonic() - began, sum(sizes)))


@dataclass(frozen=True)
class Report:
    """The result of a run; it succeeded if all findings held."""

    produced: int
    archived: int
    lost: int
    duplicated: int
    segments: int
    segments_led: Mapping[str, int]
    crash: Crash
    phases: Sequence[Phase]
    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return all(finding.held for finding in self.findings)

    def summary(self) -> dict[str, object]:
        """The content of `summary.json`."""
        return {
            "ok": self.ok,
            "produced": self.produced,
            "archived": self.archived,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "segments": self.segments,
            "segments_led": dict(self.segments_led),
            "killed": {
                "node": self.crash.node,
                "segment": self.crash.segment.number,
                "undelivered_bytes": self.crash.undelivered_bytes,
                "leaderless_s": round(self.crash.leaderless_s, 3),
            },
            "phases": [
                {
                    "name": phase.name,
                    "seconds": round(phase.seconds, 3),
                    "mb_per_s": None if (rate := phase.megabytes_per_second) is None else round(rate, 2),
                }
                for phase in self.phases
            ],
            "findings": [
                {"claim": finding.claim, "held": finding.held, "detail": finding.detail} for finding in self.findings
            ],
        }


def write_summary(summary: Mapping[str, object], path: Path) -> None:
    """Writes the summary, or what there is of it, where programs look for it."""
    path.write_text(json.dumps(summary, indent=2) + "\n")


def show(report: Report, console: Console) -> None:
    """Prints the phases and the findings."""
    phases = Table(title="Phases", title_justify="left", box=None, pad_edge=False, header_style="bold")
    phases.add_column("phase", min_width=26)
    phases.add_column("seconds", justify="right")
    phases.add_column("MB/s", justify="right")
    for phase in report.phases:
        rate = phase.megabytes_per_second
        phases.add_row(phase.name, f"{phase.seconds:.1f}", "" if rate is None else f"{rate:.1f}")
    findings = Table(title="Proof", title_justify="left", box=None, pad_edge=False, header_style="bold")
    findings.add_column("")
    findings.add_column("claim")
    findings.add_column("found", overflow="fold")
    for finding in report.findings:
        mark = "[green]held[/]" if finding.held else "[bold red]FAILED[/]"
        findings.add_row(mark, finding.claim, finding.detail)
    console.print()
    console.print(phases)
    console.print()
    console.print(findings)
    console.print()
