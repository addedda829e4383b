"""The memory of the processes that read for Spark."""

import resource
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from endless import TOPIC, Endless


def resident_bytes_of_workers():
    """The largest of the processes in which Spark runs Python."""
    sizes = [0]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                sizes.append(int((process / "statm").read_text().split()[1]) * resource.getpagesize())
    return max(sizes)


@contextmanager
def peak_of_workers():
    """A list whose last element is the most that a worker had within."""
    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak.append(max(peak[-1], resident_bytes_of_workers()))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peak
    finally:
        done.set()
        watching.join()


@pytest.mark.timeout(900)
def test_a_worker_that_reads_ten_million_rows_takes_no_more_memory_than_for_one_million(spark):
    with Endless(10_000_000) as node:
        source = spark.read.format("walrus").option("bootstrap.servers", node.address).option("subscribe", TOPIC)
        source = source.option("includeHeaders", "true")
        peaks = []
        for rows in (1_000_000, 10_000_000):
            ending = f'{{"{TOPIC}": {{"0": {rows}}}}}'
            with peak_of_workers() as peak:
                frame = source.option("endingOffsets", ending).load()
                assert frame.rdd.getNumPartitions() == 1
                assert frame.count() == rows
            peaks.append(peak[-1])
    assert peaks[0] > 0
    assert peaks[1] - peaks[0] < 64 << 20
