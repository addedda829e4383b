"""Suite `spark`: Spark reading topics through `format("walrus")` and throwing the rows away, and the archive.

The limit is measured in the same rounds: Spark reading the same rows from Arrow batches that are ready.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark_walrus.archive import archive
from pyspark_walrus.options import SourceOptions
from pyspark_walrus.session import create_session
from pyspark_walrus.source import BatchReader
from walrus_client import Client, SegmentState
from walrus_client.dev import DevCluster, NodeOptions

from walrus_bench import programs
from walrus_bench.goals import RECORD_BYTES
from walrus_bench.ready_batches import ReadyBatches, keep
from walrus_bench.sampling import PROBE, InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers

SMALL_BYTES = 100
SEGMENT_RECORDS = 800_000
RECORDS = 1_500_000  # one segment is sealed, the next one stays open
SMALL_RECORDS = 3_000_000
QUICK_SHARE = 200


@dataclass(frozen=True)
class Source:
    """A topic of records of one size, and the session that reads it."""

    session: SparkSession
    bootstrap: str
    topic: str
    record_bytes: int

    def rows(self, start: int, end: int) -> DataFrame:
        """The records `[start, end)`; every offset is checked to be there once, which also warms Spark up."""
        source = self.session.read.format("walrus").options(**self._options(start, end))
        rows = source.load()
        (found,) = rows.agg(
            F.count("*").alias("records"),
            F.count_distinct("offset").alias("offsets"),
            F.max("offset").alias("last"),
            F.sum(F.length("value")).alias("bytes"),
        ).collect()
        records = end - start
        expected = (records, records, end - 1, records * self.record_bytes)
        if tuple(found) != expected:
            raise InvalidRunError(f"Spark read (records, offsets, last, bytes) = {tuple(found)}, not {expected}")
        return rows

    def ready(self, start: int, end: int, path: Path) -> DataFrame:
        """As many rows of ready batches like the source's own, from as many tasks, and read once to warm Spark up."""
        reader = BatchReader(SourceOptions.parse(self._options(start, end)))
        splits = reader.partitions()
        keep(next(iter(reader.read(splits[0]))), path)
        options = {"path": str(path), "rows": str(end - start), "tasks": str(len(splits))}
        rows = self.session.read.format("ready").options(**options).load()
        _duration_s(rows)
        return rows

    def _options(self, start: int, end: int) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": json.dumps({self.topic: {"0": start}}),
            "endingOffsets": json.dumps({self.topic: {"0": end}}),
        }


@dataclass(frozen=True)
class Rows:
    """Rows that a query reads, and how many they are."""

    frame: DataFrame
    count: int


@contextmanager
def reading(settings: Settings) -> Iterator[Prepared]:
    """Sets up a broker with a topic of 1 KiB records and one of small ones, and a Spark session that has read them."""
    share = QUICK_SHARE if settings.quick else 1
    options = NodeOptions(segment_entries_max=SEGMENT_RECORDS // share, segment_age_min="0")
    with brokers.running(settings.data_dir / "broker", nodes=1, options=options) as cluster:
        sealed, records = _fill(cluster, "kib", RECORD_BYTES, RECORDS // share, settings)
        _, small_records = _fill(cluster, "small", SMALL_BYTES, SMALL_RECORDS // share, settings)
        session = create_session("walrus-bench", log_file=settings.data_dir / "spark.log")
        try:
            session.dataSource.register(ReadyBatches)
            kib = Source(session, cluster.bootstrap, "kib", RECORD_BYTES)
            small = Source(session, cluster.bootstrap, "small", SMALL_BYTES)
            yield Prepared(
                subjects(
                    sealed=Rows(kib.rows(0, sealed), sealed),
                    opened=Rows(kib.rows(sealed, records), records - sealed),
                    small=Rows(small.rows(0, small_records), small_records),
                    ready=Rows(kib.ready(0, sealed, settings.data_dir / "kib.arrow"), sealed),
                    ready_small=Rows(small.ready(0, small_records, settings.data_dir / "small.arrow"), small_records),
                    archived=partial(_archive, session, cluster, records, settings.data_dir / "archive"),
                ),
                pids=brokers.pids(cluster),
            )
        finally:
            session.stop()


def subjects(
    *, sealed: Rows, opened: Rows, small: Rows, ready: Rows, ready_small: Rows, archived: Callable[[], Sample]
) -> list[Subject]:
    """What is measured in each round, the limit in front of what is held against it."""
    return [
        Subject("spark_ready", PROBE, "", partial(_megabytes, ready)),
        Subject("spark_source", "walrus", "auto", partial(_megabytes, sealed)),
        Subject("spark_ready_small", PROBE, "", partial(_rows, ready_small)),
        Subject("spark_source_small", "walrus", "auto", partial(_rows, small)),
        Subject("spark_open_over_sealed", "walrus", "auto", partial(_open_over_sealed, opened, sealed)),
        Subject("spark_archive", "walrus", "auto", archived),
    ]


def _fill(cluster: DevCluster, topic: str, record_bytes: int, records: int, settings: Settings) -> tuple[int, int]:
    """Where the open segment begins, and where it ends."""
    load = programs.build("walrus-bench-load")
    at = brokers.listeners(cluster.nodes[0])
    size = ("--record-bytes", record_bytes)
    programs.run(load, "fill", *at, "--topic", topic, *size, "--records", records, seconds=settings.seconds)
    with Client(cluster.bootstrap) as client:
        (partition,) = client.segments(topic)
    sealed = [segment.end_offset for segment in partition.segments if segment.state is SegmentState.SEALED]
    if not sealed or sealed[-1] >= partition.high_watermark:
        raise InvalidRunError(f"{records} records of {topic} made {len(sealed)} sealed segments and no open one")
    return sealed[-1], partition.high_watermark


def _duration_s(rows: DataFrame) -> float:
    start = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    return time.monotonic() - start


def _megabytes(rows: Rows) -> Sample:
    seconds = _duration_s(rows.frame)
    return Sample(rows.count * RECORD_BYTES / 1e6 / seconds, "MB/s", {"seconds": seconds, "records": rows.count})


def _rows(rows: Rows) -> Sample:
    seconds = _duration_s(rows.frame)
    return Sample(rows.count / seconds, "rows/s", {"seconds": seconds, "records": rows.count})


def _open_over_sealed(opened: Rows, sealed: Rows) -> Sample:
    rates = opened.count / _duration_s(opened.frame), sealed.count / _duration_s(sealed.frame)
    return Sample(rates[0] / rates[1], "x", {"open_rows_per_s": rates[0], "sealed_rows_per_s": rates[1]})


def _archive(session: SparkSession, cluster: DevCluster, records: int, folder: Path) -> Sample:
    try:
        run = archive(session, bootstrap_servers=cluster.bootstrap, topic="kib", path=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if run.records != records:
        raise InvalidRunError(f"{run.records} records were archived, not {records}")
    return Sample(records * RECORD_BYTES / 1e6 / run.seconds, "MB/s", {"seconds": run.seconds, "batches": run.batches})
