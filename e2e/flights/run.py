"""The run from beginning to end; the only file here that wires the others together.

    brokers up -> stream the first part, kill the leader in it -> archive -> stream the rest -> archive
    -> bring the killed broker back -> prove -> draw

Every segment has three copies, of which two acknowledge: the archive is complete before the killed broker is back.
Spark starts while the brokers do and the first part is streamed.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_walrus.archive import ArchiveRun, archive
from pyspark_walrus.session import JAVA_SHORT, check_java, create_session
from rich.console import Console
from walrus_client import Client, Segment, SegmentState, WalrusError
from walrus_client.dev import DevCluster, DevError, NodeOptions, open_cluster, start_cluster

from flights import lake, picture, proof
from flights.copies import own_copies
from flights.proof import Finding, Losses
from flights.report import Report, Stopwatch
from flights.screen import Screen
from flights.sender import Sender, SenderKind, sender_of
from flights.stream import TOPIC, Crash, kill_leader, name_of, stream
from flights.table import Flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS: Final = "brokers"
ARCHIVE: Final = "archive"
PICTURE: Final = "flights.png"
SPARK_LOG: Final = "spark.log"
SEGMENT_ENTRIES_MAX: Final = 40_000
# The segments are small for the picture to show several, and end as soon as they are full.
BROKER_OPTIONS: Final = NodeOptions(
    segment_entries_max=SEGMENT_ENTRIES_MAX, segment_age_min="0", replication_factor=3, write_quorum=2
)
# Shares of the events: where the leader is killed, in the middle of a segment, and where the first archive run is made.
KILL_AT: Final = 0.5
FIRST_PART: Final = 0.65


def run(directory: Path, console: Console, sender: SenderKind = SenderKind.WALRUS) -> Report:
    """Does the whole job in *directory*, which is emptied first. Nothing it started is left running."""
    check_java()
    _start_clean(directory)
    stopwatch = Stopwatch()
    with ThreadPoolExecutor() as background:
        spark = background.submit(create_session, "flights", java_options=JAVA_SHORT, log_file=directory / SPARK_LOG)
        try:
            with Screen(console) as screen:
                with stopwatch.phase("start brokers"):
                    brokers = start_cluster(directory / BROKERS, options=BROKER_OPTIONS, progress=screen.say)
                with Client(brokers.bootstrap) as client:
                    job = _Job(directory, screen, stopwatch, brokers, client, Flights.load(), background, sender)
                    return job.run(spark)
        finally:
            _stop_brokers(directory / BROKERS)
            spark.result().stop()


@dataclass(frozen=True)
class _Job:
    directory: Path
    screen: Screen
    stopwatch: Stopwatch
    brokers: DevCluster
    client: Client
    flights: Flights
    background: ThreadPoolExecutor
    kind: SenderKind

    def run(self, starting: "Future[SparkSession]") -> Report:
        """All phases, with brokers that serve."""
        count = len(self.flights)
        first_part = int(count * FIRST_PART)
        self.client.create_topic(TOPIC)
        move = self.screen.bar("stream flights", count)
        with sender_of(self.kind, self.client, self.brokers, TOPIC, move) as sender:
            with self.stopwatch.phase("stream, first part") as sizes:
                crash, size = self._stream_and_kill(sender, first_part)
                sizes.append(size)
            with self.stopwatch.phase("wait for Spark to start"):
                spark = starting.result()
            first = self._archive(spark, "archive, first run", records=first_part, size=size)
            with self.stopwatch.phase("stream, the rest") as sizes:
                size = stream(sender, self.flights, start=first_part, end=count)
                sizes.append(size)
        second = self._archive(spark, "archive, second run", records=count - first_part, size=size)
        with self.stopwatch.phase("bring the killed broker back"):
            self.brokers.restart(crash.node)
            segments = self.client.segments(TOPIC)[0].segments
            whole = self._compare_copies(segments, crash)
        with self.stopwatch.phase("prove"):
            found = lake.query(spark, self.directory / ARCHIVE)
            losses, findings = self._prove(found, [first, second], segments, crash)
            findings.append(whole)
        with self.stopwatch.phase("draw"):
            strips = [picture.Strip(s.base_offset, s.end_offset, self._leader(s)) for s in segments]
            picture.draw(found, strips, killed_at=crash.segment.end_offset, path=self.directory / PICTURE)
        return Report(
            produced=count,
            archived=len(found.records),
            lost=len(losses.lost),
            duplicated=len(losses.duplicated),
            segments=len(segments),
            segments_led=self._turns(segments),
            crash=crash,
            phases=self.stopwatch.phases,
            findings=findings,
        )

    def _stream_and_kill(self, sender: Sender, end: int) -> tuple[Crash, int]:
        killing: list[Future[Crash]] = []

        def on_sent(number: int) -> None:
            if number == int(len(self.flights) * KILL_AT):
                limit = SEGMENT_ENTRIES_MAX
                kill = partial(kill_leader, self.client, self.brokers, sender, segment_entries_max=limit)
                killing.append(self.background.submit(kill))

        size = stream(sender, self.flights, start=0, end=end, on_sent=on_sent)
        crash = killing[0].result()
        self.screen.say(
            f"{crash.node}, which led segment {crash.segment.number}, was killed with {crash.undelivered_bytes:,} "
            f"bytes on their way; another broker led after {crash.leaderless_s:.1f} s, it stays down"
        )
        return crash, size

    def _archive(self, spark: "SparkSession", name: str, *, records: int, size: int) -> ArchiveRun:
        move = self.screen.bar(name, records)
        with self.stopwatch.phase(name) as sizes:
            sizes.append(size)
            return archive(
                spark,
                bootstrap_servers=self.brokers.bootstrap,
                topic=TOPIC,
                path=self.directory / ARCHIVE,
                on_progress=lambda done, _: move(done),
            )

    def _compare_copies(self, segments: Sequence[Segment], crash: Crash) -> Finding:
        sealed = [segment for segment in segments if segment.state is SegmentState.SEALED]
        names = {segment.uuid: [name_of(self.brokers, node.id) for node in segment.replicas] for segment in sealed}
        try:
            copies = own_copies(self.brokers, sealed)
        except (WalrusError, TimeoutError) as error:
            return proof.copies_unread(str(error))
        return proof.copies_whole(names, copies, crash.node)

    def _prove(
        self, found: lake.Lake, runs: Sequence[ArchiveRun], segments: Sequence[Segment], crash: Crash
    ) -> tuple[Losses, list[Finding]]:
        produced, archived = self.flights.records(), found.records
        sealed = sum(segment.state is SegmentState.SEALED for segment in segments)
        return proof.losses(produced, archived), [
            proof.each_record_once(produced, archived),
            proof.records_unchanged(produced, archived),
            proof.offsets_dense(archived),
            proof.in_order_per_key(archived),
            proof.aggregates_equal("carrier", self.flights.delays("carrier"), found.by_carrier),
            proof.aggregates_equal("month", self.flights.delays("month"), found.by_month),
            proof.second_run_continued([run.records for run in runs], len(produced)),
            proof.segments_rotated(sealed, self._turns(segments)),
            proof.killed_under_load(crash.undelivered_bytes, killed_leader=_cut_short(crash, segments)),
        ]

    def _turns(self, segments: Sequence[Segment]) -> dict[str, int]:
        turns = Counter(self._leader(segment) for segment in segments)
        return {node.name: turns[node.name] for node in self.brokers.nodes}

    def _leader(self, segment: Segment) -> str:
        return name_of(self.brokers, segment.leader.id) if segment.leader is not None else "nobody"


def _cut_short(crash: Crash, segments: Sequence[Segment]) -> bool:
    """Whether the segment that the killed broker led was sealed before it was full: it led indeed."""
    ended = next(segment for segment in segments if segment.uuid == crash.segment.uuid)
    return ended.end_offset - ended.base_offset < SEGMENT_ENTRIES_MAX


def _start_clean(directory: Path) -> None:
    """Empties the directory; a run that was cut off may have left its brokers running."""
    _stop_brokers(directory / BROKERS)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _stop_brokers(directory: Path) -> None:
    with suppress(DevError):  # there are none
        open_cluster(directory).stop()
