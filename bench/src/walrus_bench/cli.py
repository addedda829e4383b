"""The command line: runs a suite, shows its tables, writes its report and its picture."""

import signal
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from walrus_bench import cpu, curves, machine, plot, report, tables
from walrus_bench.limits import limit_rows
from walrus_bench.programs import BENCH_DIR, REPOSITORY
from walrus_bench.sampling import Gate, InvalidRunError, Series, rounds_of, take_rounds
from walrus_bench.suites import Phase, Settings

QUICK_S, QUICK_ROUNDS = 0.2, 2

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


class Suite(StrEnum):
    """What `run` takes."""

    STORAGE = "storage"
    SIZES = "sizes"
    CLUSTER = "cluster"
    TOPICS = "topics"
    KAFKA = "kafka"
    SCALE = "scale"
    SPARK = "spark"


def phases_of(suite: Suite) -> Sequence[Phase]:
    """The phases of a suite. Imported when asked for: `storage` must run where no Spark and no broker is installed."""
    match suite:
        case Suite.STORAGE:
            from walrus_bench.suites import storage

            return (storage.engine,)
        case Suite.SIZES:
            from walrus_bench.suites import storage

            return (storage.sizes,)
        case Suite.CLUSTER:
            from walrus_bench.suites import absence, cluster, failures, metadata, replicated

            return (
                cluster.one_broker,
                replicated.appends,
                replicated.planned_rolls,
                failures.failures,
                absence.absence,
                metadata.commits,
                cluster.idle_brokers,
            )
        case Suite.TOPICS:
            from walrus_bench.suites import policies, topics

            return (topics.ten_thousand, policies.policies)
        case Suite.KAFKA:
            from walrus_bench.suites import kafka, kafka_cluster

            return (kafka.one_broker, kafka_cluster.replicated, kafka_cluster.groups, kafka_cluster.many_topics)
        case Suite.SCALE:
            from walrus_bench.suites import scale

            return scale.points()
        case Suite.SPARK:
            from walrus_bench.suites import spark

            return (spark.reading,)


@app.callback()
def main() -> None:
    """Benchmarks of Walrus beside the limits of the machine."""


@app.command()
def run(
    suite: Suite,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each subject, interleaved.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.01, help="Length of each sample.")] = 3.0,
    gate: Annotated[bool, typer.Option(help="Drop and repeat samples while others use the CPU.")] = True,
    peers: Annotated[bool, typer.Option(help="Also measure other systems (suite storage).")] = False,
    rocksdb: Annotated[bool, typer.Option(help="Also RocksDB: minutes to build.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="CASE", help="Only this case, beside the limits. May be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Tiny samples, no gate: shows that it works, measures nothing.")] = False,
    data_dir: Annotated[Path, typer.Option("--dir", help="Scratch directory, on the disk to be measured.")] = (
        REPOSITORY / ".walrus" / "bench"
    ),
    results: Annotated[Path, typer.Option(help="Where the report and the picture go.")] = BENCH_DIR / "results",
) -> None:
    """Runs a suite. Exits 0 when it ran, whether or not goals are met; 1 when a run is invalid."""
    if quick:
        rounds, seconds, gate, results = QUICK_ROUNDS, QUICK_S, False, results / "quick"
    console = Console()
    if not console.is_terminal:
        console = Console(width=tables.WIDE_COLUMNS)  # nobody wraps a log file
    data_dir.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="run-", dir=data_dir) as scratch:
        settings = Settings(data_dir=Path(scratch), seconds=seconds, peers=peers, rocksdb=rocksdb, quick=quick)
        try:
            all_series, notes = _measure(
                suite, settings, wanted=frozenset(only or ()), rounds=rounds, gated=gate, console=console
            )
        except InvalidRunError as error:
            told = "\n".join((str(error), *getattr(error, "__notes__", ())))
            console.print("[bold red]invalid run:[/]", Text(told), soft_wrap=True)
            raise typer.Exit(1) from error

    result = report.Report(
        suite=suite.value,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        commit=machine.commit(REPOSITORY),
        machine=machine.facts(data_dir),
        settings={"rounds": rounds, "seconds": seconds, "gate": "on" if gate else "off"},
        load=report.load_facts(all_series),
        notes=notes,
        limits=limit_rows(all_series),
        rows=report.rows(all_series),
    )
    result.write(results / f"{suite.value}.json")
    picture = results / f"{suite.value}.png"
    if suite is Suite.SCALE:
        grown = curves.curves_of(result)
        curves.draw(grown, picture)
        curves.show(grown, console)
        return
    plot.draw(result, picture)
    tables.show(result, console)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """Leaves by the way of exceptions, so that brokers are stopped and gigabytes removed."""
    raise SystemExit(128 + number)


def _measure(
    suite: Suite, settings: Settings, *, wanted: frozenset[str], rounds: int, gated: bool, console: Console
) -> tuple[list[Series], list[str]]:
    all_series: dict[tuple[str, str], Series] = {}  # by phase: some limits are probed in several
    notes: list[str] = []
    measured: set[str] = set()
    for phase in phases_of(suite):
        with phase(settings) as prepared:
            subjects = [subject for subject in prepared.subjects if subject.is_among(wanted)]
            if all(subject.is_probe for subject in subjects):
                continue
            measured.update(*(subject.cases for subject in subjects))
            notes.extend(prepared.notes)
            gate = Gate(cpu.reader(prepared.pids), enabled=gated)
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=console, transient=True) as progress:
                total = sum(rounds_of(subject, rounds) for subject in subjects)
                task = progress.add_task(f"{suite.value}: {rounds} rounds", total=total)
                for series in take_rounds(subjects, phase=phase.__name__, rounds=rounds, gate=gate):
                    all_series[series.phase, series.subject.name] = series
                    latest = series.taken[-1].sample
                    told = f"{series.subject.name}: {tables.figure(latest.value)} {latest.unit}"
                    progress.update(task, advance=1, description=told)
                    if not console.is_terminal:  # which shows no bar
                        console.print(
                            f"{phase.__name__}, round {len(series.taken)} of {rounds}: {told}", highlight=False
                        )
    if unknown := wanted - measured:
        raise InvalidRunError(f"suite {suite.value} has no case {', '.join(sorted(unknown))}")
    return list(all_series.values()), notes
