"""Spark's own source and sink of Kafka: batches, and a stream that goes on where it was. `python -m` runs the job."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from walrus_compat.clients import cache
from walrus_compat.feature import check
from walrus_compat.stage import Stage

SET = "spark-kafka-4.2.0"
ROWS = 1_000
RUN_S = 300.0


def jars() -> Path:
    """The folder of the jars of Spark's connector."""
    return cache() / "jars" / SET


def source_and_sink(stage: Stage) -> None:
    """A batch writes and reads a topic; a stream copies it, and copies what came later when it is run again."""
    topic, copy = stage.topic("spark", partitions=3), stage.topic("copy", partitions=3)
    checkpoint = stage.directory / stage.name("checkpoint")
    counts = []
    for begin in (0, ROWS):
        done = subprocess.run(  # noqa: S603 - the arguments are our own
            [sys.executable, "-m", "walrus_compat.spark", stage.bootstrap, topic, copy, str(checkpoint), str(begin)],
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        (stage.directory / "spark.log").write_text(done.stderr)
        check(done.returncode == 0, f"the job ended with {done.returncode}: {done.stderr.strip()[-800:]}")
        counts.append(json.loads(done.stdout.splitlines()[-1]))
    check(counts == [ROWS, 2 * ROWS], f"batches read {counts} rows")
    for name in (topic, copy):
        values = sorted(record.value or b"" for partition in range(3) for record in stage.log(name, partition))
        check(
            values == sorted(f"row {number}".encode() for number in range(2 * ROWS)), f"{name} has {len(values)} rows"
        )


def main(arguments: Sequence[str]) -> None:
    """Write some rows, read all, and let the stream copy what is new."""
    from pyspark.sql import SparkSession, functions

    bootstrap, topic, copy, checkpoint, begin = arguments
    paths = ",".join(str(path) for path in sorted(jars().glob("*.jar")))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", paths)
        .config("spark.ui.enabled", value=False)
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(int(begin), int(begin) + ROWS).select(
        functions.col("id").cast("string").alias("key"), functions.format_string("row %d", "id").alias("value")
    )
    rows.write.format("kafka").options(**kafka, topic=topic).save()
    source = {**kafka, "subscribe": topic, "startingOffsets": "earliest"}
    count = spark.read.format("kafka").options(**source).load().count()
    stream = spark.readStream.format("kafka").options(**source).load().select("key", "value")
    sink = stream.writeStream.format("kafka").options(**kafka, topic=copy, checkpointLocation=checkpoint)
    sink.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    sys.stdout.write(f"{json.dumps(count)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
