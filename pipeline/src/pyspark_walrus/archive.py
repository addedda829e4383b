"""The archive of a topic: its records in Parquet, by month, each exactly once.

Spark's checkpoint says which offsets a micro-batch covers and its file sink which files count; together they make the
archive exactly-once, whatever is killed and run again. What makes them belong together is `binding`. Between runs the
files that readers see are exactly those that count; while one runs, or after one was killed, `read_archive` knows them.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_walrus import binding
from pyspark_walrus.binding import ArchiveRefusedError
from pyspark_walrus.cluster import Cluster
from pyspark_walrus.folder import Folder, InUseError, UnreachableError, open_folder
from pyspark_walrus.layout import TopicLayout
from pyspark_walrus.offsets import check_found
from pyspark_walrus.options import servers_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The month of a record in UTC, whatever the session's time zone.
MONTH: Final = "date_format(date_from_unix_date(cast(floor(unix_millis(timestamp) / 86400000) AS int)), 'yyyy-MM')"
COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType")
SCHEMA: Final = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, timestamp timestamp, timestampType int, month string"
)
CHECKPOINT: Final = "_checkpoint"
BATCH_BYTES_MAX: Final = 1 << 30
# Months that a task writes side by side. With one file at a time it would sort its records by month first.
FILES_AT_ONCE: Final = 6
# Each file that is being written keeps so much in Java's memory.
ROW_GROUP_BYTES: Final = 32 << 20
POLL_S: Final = 1
# What Hadoop would take for a pattern in the name of a file.
GLOB: Final = re.compile(r"[\\\[\]{}*?]")


@dataclass(frozen=True)
class ArchiveRun:
    """What one run of `archive` did."""

    records: int
    batches: int
    seconds: float


def archive(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    topic: str,
    path: Path | str,
    checkpoint: Path | str | None = None,
    records_per_batch_max: int | None = None,
    bytes_per_batch_max: int = BATCH_BYTES_MAX,
    accept_loss: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> ArchiveRun:
    """Archives what the topic holds now and the last run had not, under `path`/month=YYYY-MM/.

    Blocks until done; then everything it read is durable under `path`. `path` may be a URL that Spark can write to.
    `checkpoint` (by default within `path`) ties runs together: keep it as long as the archive. Records that retention
    took before they were archived end the run with DATA_LOSS, unless `accept_loss`. `on_progress` gets the records of
    this run so far, and about how many it will be.

    Raises ArchiveRefusedError where the folder is another archive's, or in use, or the checkpoint is not its own.
    """
    folder, state = _open(path, spark), _open(checkpoint_of(path, checkpoint), spark)
    cluster, there = _look(bootstrap_servers, topic)
    with _held(folder):
        binding.bind(folder, state, _decide(folder, state, cluster, there))
        binding.set_aside(folder)
        try:
            return _run(
                spark,
                folder,
                state,
                there,
                options={
                    "bootstrap.servers": bootstrap_servers,
                    "maxBytesPerTrigger": str(bytes_per_batch_max),
                    "failOnDataLoss": str(not accept_loss),
                    **({"maxOffsetsPerTrigger": str(records_per_batch_max)} if records_per_batch_max else {}),
                },
                on_progress=on_progress,
            )
        finally:
            binding.set_aside(folder)


def check(*, bootstrap_servers: str, topic: str, path: Path | str, checkpoint: Path | str | None = None) -> None:
    """Raises ArchiveRefusedError where `archive` would, as far as that can be seen without Spark: in local folders."""
    folder, state = open_folder(path), open_folder(checkpoint_of(path, checkpoint))
    if folder is None or state is None:
        return
    cluster, there = _look(bootstrap_servers, topic)
    with _held(folder) if folder.names() else nullcontext():
        _decide(folder, state, cluster, there)


def read_archive(spark: "SparkSession", path: Path | str) -> "DataFrame":
    """The archive's records, with their `month`; only those of finished micro-batches, at any time and any place."""
    folder = _open(path, spark)
    with _named(folder):
        files = [f"{folder.url}/{name}" for name in binding.archived_files(folder)]
    if not files:
        return spark.createDataFrame([], SCHEMA)
    exact = [GLOB.sub(r"\\\g<0>", file) for file in files]
    return spark.read.schema(SCHEMA).option("basePath", folder.url).parquet(*exact)


def checkpoint_of(path: Path | str, checkpoint: Path | str | None) -> Path | str:
    """Where the checkpoint is, if nothing else is said."""
    return checkpoint if checkpoint is not None else f"{str(path).rstrip('/')}/{CHECKPOINT}"


def _open(place: Path | str, spark: "SparkSession") -> Folder:
    try:
        folder = open_folder(place, spark)
    except UnreachableError as error:
        jar = "its file system may need a jar (spark.jars.packages, for s3a hadoop-aws) and settings of its own"
        raise ArchiveRefusedError(
            f"{error}: {jar}; archive into a local folder, or from a session that has them"
        ) from None
    assert folder is not None, "Spark is running"
    return folder


def _look(bootstrap_servers: str, topic: str) -> tuple[str, TopicLayout]:
    """The cluster's uuid and the topic."""
    with Cluster(servers_of(bootstrap_servers)) as cluster:
        uuid, layout = cluster.uuid(), cluster.look([topic])
    check_found([topic], layout)
    return uuid, layout[topic]


@contextmanager
def _named(folder: Folder) -> Iterator[None]:
    """Refusals name the folder."""
    try:
        yield
    except ArchiveRefusedError as refused:
        raise ArchiveRefusedError(f"{folder.url}: {refused}") from None


@contextmanager
def _held(folder: Folder) -> Iterator[None]:
    try:
        with folder.locked():
            yield
    except InUseError:
        raise ArchiveRefusedError(
            f"{folder.url}: another run archives into it, or was killed a moment ago: wait until it is done"
        ) from None


def _decide(folder: Folder, state: Folder, cluster: str, there: TopicLayout) -> binding.Binding:
    with _named(folder):
        found = binding.look(folder, state)
        return binding.decide(found, cluster=cluster, topic=there.name, topic_uuid=there.uuid)


def _run(
    spark: "SparkSession",
    folder: Folder,
    state: Folder,
    there: TopicLayout,
    *,
    options: dict[str, str],
    on_progress: Callable[[int, int], None] | None,
) -> ArchiveRun:
    total = _pending(state, there)
    began = time.monotonic()
    source = spark.readStream.format("walrus").options(**options)
    rows = source.option("subscribe", there.name).option("startingOffsets", "earliest").option("includeHeaders", "true")
    writer = rows.load().selectExpr(*COLUMNS, f"{MONTH} AS month").writeStream.format("parquet")
    writer = writer.partitionBy("month").option("compression", "zstd").option("path", folder.url)
    writer = writer.option("parquet.block.size", str(ROW_GROUP_BYTES))
    with _setting(spark, "spark.sql.maxConcurrentOutputFileWriters", str(FILES_AT_ONCE)):
        query = writer.option("checkpointLocation", state.url).trigger(availableNow=True).start()
    records: dict[int, int] = {}  # by micro-batch: Spark remembers only the newest
    done = False
    try:
        while not done:
            done = bool(query.awaitTermination(POLL_S))  # returns at once when it ends
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    records[progress["batchId"]] = progress["numInputRows"]
            if on_progress is not None:
                on_progress(sum(records.values()), max(total, sum(records.values())))
    finally:
        query.stop()
    return ArchiveRun(sum(records.values()), len(records), time.monotonic() - began)


def _pending(state: Folder, there: TopicLayout) -> int:
    """About how many records the archive lacks."""
    at = binding.reached(state)
    reached = at.next if at is not None else {}
    return sum(
        max(0, partition.high_watermark - max(partition.log_start, reached.get((there.name, number), 0)))
        for number, partition in there.partitions.items()
    )


@contextmanager
def _setting(spark: "SparkSession", name: str, value: str) -> Iterator[None]:
    """A query keeps the settings that it was started with."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
