"""The run from beginning to end; the only file here that wires the others together.

    brokers up -> stream the first part, kill the leader in it -> archive -> stream the rest -> archive -> prove -> draw

Spark starts while the brokers do and the first part is streamed.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_walrus.archive import ArchiveRun, archive
from pyspark_walrus.session import check_java, create_session
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from walrus_client import Appended, Client, Segment, SegmentState
from walrus_client.dev import DevCluster, DevError, NodeOptions, open_cluster, start_cluster

from flights import lake, picture, proof
from flights.report import Phase, Report
from flights.stream import OPTIONS, TOPIC, Crash, kill_leader, name_of, stream
from flights.table import Flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS: Final = "brokers"
SEGMENT_ENTRIES_MAX: Final = 40_000
# Shares of the events: where the leader is killed, in the middle of a segment, and where the first archive run is made.
KILL_AT: Final = 0.5
FIRST_PART: Final = 0.6


@dataclass
class Stopwatch:
    """The phases so far."""

    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[list[int]]:
        """Times what is done within; numbers appended to the list are the bytes that went through."""
        began = time.monotonic()
        sizes: list[int] = []
        yield sizes
        self.phases.append(Phase(name, time.monotonic() - began, sum(sizes)))


class Screen:
    """What the reader sees while it runs: a line for each event, bars for what is going on."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self.progress.console.print(text, highlight=False)


def run(directory: Path, console: Console) -> Report:
    """Does the whole job in *directory*, which is emptied first. Nothing it started is left behind."""
    check_java()
    _start_clean(directory)
    screen, stopwatch = Screen(console), Stopwatch()
    with ThreadPoolExecutor() as background:
        starting = background.submit(create_session, "flights", log_file=directory / "spark.log")
        try:
            with screen.progress:
                return _run(directory, screen, stopwatch, background, starting)
        finally:
            _stop_brokers(directory / BROKERS)
            starting.result().stop()


def _run(
    directory: Path,
    screen: Screen,
    stopwatch: Stopwatch,
    background: ThreadPoolExecutor,
    starting: "Future[SparkSession]",
) -> Report:
    with stopwatch.phase("start brokers"):
        options = NodeOptions(segment_entries_max=SEGMENT_ENTRIES_MAX)
        brokers = start_cluster(directory / BROKERS, nodes=3, options=options, progress=screen.say)
    flights = Flights.load()
    first_part = int(len(flights) * FIRST_PART)
    archived = directory / "archive"
    with Client(brokers.bootstrap) as client:
        client.create_topic(TOPIC)
        bar = screen.progress.add_task("stream flights", total=len(flights))

        def on_delivery(delivery: "Future[Appended]") -> None:
            if delivery.exception() is None:
                appended = delivery.result()
                screen.progress.advance(bar, appended.end_offset - appended.base_offset)

        with client.producer(TOPIC, options=OPTIONS, on_delivery=on_delivery) as producer:
            killing: list[Future[Crash]] = []

            def on_sent(number: int) -> None:
                if number == int(len(flights) * KILL_AT):
                    killing.append(background.submit(kill_leader, client, brokers, producer))

            with stopwatch.phase("stream, first part") as sizes:
                sizes.append(stream(producer, flights, start=0, end=first_part, on_sent=on_sent))
            crash = killing[0].result()
            screen.say(
                f"killed {crash.node}, which led segment {crash.segment.number}, with {crash.undelivered_bytes:,} "
                f"bytes on their way; it was back after {crash.seconds_down:.1f} s"
            )
            with stopwatch.phase("wait for Spark to start"):
                spark = starting.result()
            with stopwatch.phase("archive, first run") as first_sizes:
                first = _archive(spark, brokers.bootstrap, archived, screen, "archive, first run", first_part)
                first_sizes.extend(sizes)
            with stopwatch.phase("stream, the rest") as rest_sizes:
                rest_sizes.append(stream(producer, flights, start=first_part, end=len(flights)))
        with stopwatch.phase("archive, second run") as second_sizes:
            rest = len(flights) - first_part
            second = _archive(spark, brokers.bootstrap, archived, screen, "archive, second run", rest)
            second_sizes.extend(rest_sizes)
        segments = client.segments(TOPIC)[0].segments
    with stopwatch.phase("prove"):
        found = lake.query(spark, archived)
        produced = flights.records()
        led = dict.fromkeys((node.name for node in brokers.nodes), 0) | Counter(
            _leader(brokers, segment) for segment in segments
        )
        sealed = sum(segment.state is SegmentState.SEALED for segment in segments)
        findings = [
            proof.each_record_once(produced, found.records),
            proof.records_unchanged(produced, found.records),
            proof.offsets_dense(found.records),
            proof.in_order_per_key(found.records),
            proof.aggregates_equal("carrier", flights.delays("carrier"), found.by_carrier),
            proof.aggregates_equal("month", flights.delays("month"), found.by_month),
            proof.second_run_continued([first.records, second.records], len(flights)),
            proof.segments_rotated(sealed, led),
            proof.killed_under_load(crash.undelivered_bytes, _cut_short(crash, segments)),
        ]
        losses = proof.losses(produced, found.records)
    with stopwatch.phase("draw"):
        strips = [picture.Strip(s.base_offset, s.end_offset, _leader(brokers, s)) for s in segments]
        picture.draw(found, strips, killed_at=crash.segment.end_offset, path=directory / "flights.png")
    return Report(
        produced=len(flights),
        archived=len(found.records),
        lost=len(losses.lost),
        duplicated=len(losses.duplicated),
        segments=len(segments),
        segments_sealed=sealed,
        segments_led=led,
        killed=crash.node,
        phases=stopwatch.phases,
        findings=findings,
    )


def _archive(spark: "SparkSession", bootstrap: str, path: Path, screen: Screen, name: str, expected: int) -> ArchiveRun:
    bar = screen.progress.add_task(name, total=expected)
    return archive(
        spark,
        bootstrap_servers=bootstrap,
        topic=TOPIC,
        path=path,
        on_progress=lambda records: screen.progress.update(bar, completed=records),
    )


def _start_clean(directory: Path) -> None:
    """Empties the directory; a run that was cut off may have left its brokers running."""
    _stop_brokers(directory / BROKERS)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _stop_brokers(directory: Path) -> None:
    with suppress(DevError):  # there are none
        open_cluster(directory).stop()


def _leader(brokers: DevCluster, segment: Segment) -> str:
    return name_of(brokers, segment.leader.id) if segment.leader is not None else "nobody"


def _cut_short(crash: Crash, segments: Sequence[Segment]) -> bool:
    """Whether the segment that the killed broker led was sealed before it was full."""
    ended = next(segment for segment in segments if segment.uuid == crash.segment.uuid)
    return ended.end_offset - ended.base_offset < SEGMENT_ENTRIES_MAX
