"""Suite `spark`: Spark reading sealed segments through `format("walrus")` and throwing the rows away."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark_walrus.session import create_session
from walrus_client import Client, SegmentState
from walrus_client.dev import NodeOptions

from walrus_bench import programs
from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers, limits

TOPIC = "sealed"
LIMITS = ("loopback_stream",)
SEGMENT_RECORDS = 200_000
SEGMENTS = 5  # of which the last one stays open and is not read
QUICK_SEGMENT_RECORDS = 2_000


@contextmanager
def sealed_segments(settings: Settings) -> Iterator[Prepared]:
    """Sets up a broker with sealed segments of 1 KiB records, and a Spark session that has read them once."""
    load = programs.build("walrus-bench-load")
    machine = limits.prepare(settings, LIMITS)
    segment_records = QUICK_SEGMENT_RECORDS if settings.quick else SEGMENT_RECORDS
    options = NodeOptions(segment_entries_max=segment_records)
    with brokers.running(settings.data_dir / "broker", nodes=1, options=options) as cluster:
        at = brokers.listeners(cluster.nodes[0])
        records = segment_records * SEGMENTS
        programs.run(load, "fill", *at, "--topic", TOPIC, "--records", records, seconds=settings.seconds)
        with Client(cluster.bootstrap) as client:
            (partition,) = client.segments(TOPIC)
        sealed = [segment for segment in partition.segments if segment.state is SegmentState.SEALED]
        if len(sealed) < SEGMENTS - 1:
            raise InvalidRunError(f"{records} records made {len(sealed)} sealed segments, not {SEGMENTS - 1}")
        end = sealed[-1].end_offset

        session = create_session("walrus-bench", log_file=settings.data_dir / "spark.log")
        try:
            rows = (
                session.read.format("walrus")
                .option("bootstrap.servers", cluster.bootstrap)
                .option("subscribe", TOPIC)
                .option("endingOffsets", json.dumps({TOPIC: {"0": end}}))
                .load()
            )
            _check(rows, records=end)
            subject = Subject("spark_source", "walrus", "auto", partial(_read, rows, end))
            yield Prepared([*machine.subjects, subject], pids=brokers.pids(cluster), notes=machine.notes)
        finally:
            session.stop()


def _check(rows: DataFrame, *, records: int) -> None:
    """Every offset once and every value whole; also warms Spark up."""
    (found,) = rows.agg(
        F.count("*").alias("records"),
        F.count_distinct("offset").alias("offsets"),
        F.max("offset").alias("last"),
        F.sum(F.length("value")).alias("bytes"),
    ).collect()
    expected = (records, records, records - 1, records * RECORD_BYTES)
    if tuple(found) != expected:
        raise InvalidRunError(f"Spark read (records, offsets, last, bytes) = {tuple(found)}, not {expected}")


def _read(rows: DataFrame, records: int) -> Sample:
    start = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    elapsed = time.monotonic() - start
    return Sample(records * RECORD_BYTES / 1e6 / elapsed, "MB/s", {"seconds": elapsed, "records": records})
