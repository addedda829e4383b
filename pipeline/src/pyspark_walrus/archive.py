"""The archive of a topic: its records in Parquet, by month, each exactly once.

Spark's checkpoint says which offsets a micro-batch covers and its file sink which files count; together they
make the archive exactly-once, whatever is killed and run again. Read it with `read_archive`, or anything
that honours `_spark_metadata`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The month of a record in UTC, whatever the session's time zone.
MONTH: Final = "date_format(date_from_unix_date(cast(floor(unix_millis(timestamp) / 86400000) AS int)), 'yyyy-MM')"
SCHEMA: Final = (
    "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp, month string"
)
CHECKPOINT: Final = "_checkpoint"
POLL_SECONDS: Final = 1


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
    on_progress: Callable[[int], None] | None = None,
) -> ArchiveRun:
    """Archives what the topic holds now and the last run had not, under `path`/month=YYYY-MM/.

    Blocks until done; then everything it read is durable under `path`. `checkpoint` (by default within
    `path`) ties runs together: keep it as long as the archive. `on_progress` gets the records so far.
    """
    source = (
        spark.readStream.format("walrus")
        .option("bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if records_per_batch_max is not None:
        source = source.option("maxOffsetsPerTrigger", str(records_per_batch_max))
    began = time.monotonic()
    query = (
        source.load()
        .selectExpr("topic", "partition", "offset", "key", "value", "timestamp", f"{MONTH} AS month")
        .writeStream.format("parquet")
        .partitionBy("month")
        .option("path", str(path))
        .option("checkpointLocation", str(checkpoint or Path(path) / CHECKPOINT))
        .trigger(availableNow=True)
        .start()
    )
    records: dict[int, int] = {}  # by micro-batch: Spark remembers only the newest
    done = False
    try:
        while not done:
            done = bool(query.awaitTermination(POLL_SECONDS))  # returns at once when it ends
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    records[progress["batchId"]] = progress["numInputRows"]
            if on_progress is not None:
                on_progress(sum(records.values()))
    finally:
        query.stop()
    return ArchiveRun(sum(records.values()), len(records), time.monotonic() - began)


def read_archive(spark: "SparkSession", path: Path | str) -> "DataFrame":
    """The archive's records, with their `month`; only those of finished micro-batches."""
    return spark.read.schema(SCHEMA).parquet(str(path))
