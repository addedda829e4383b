"""The memory of the processes that read for Spark."""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from endless import TOPIC, Endless
from pyspark.sql import SparkSession

# Six pages of 4 MiB are there at a time, as in a task that reads ahead, and then none.
# The kernel counts what it maps anew.
_ROUNDS = """
import ctypes, resource
{before}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def rounds():
    for _ in range(10):
        pages = [libc.malloc(4 << 20) for _ in range(6)]
        for page in pages:
            ctypes.memset(page, 1, 4 << 20)
        for page in pages:
            libc.free(page)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

first = rounds()
print(rounds() - first)
"""

# As many pages in each of eight threads, all at a time, and then none. What is still there was kept.
_THREADS = """
import ctypes, resource, threading
{before}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
have_theirs = threading.Barrier(8)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def hold():
    pages = [libc.malloc(4 << 20) for _ in range(6)]
    for page in pages:
        ctypes.memset(page, 1, 4 << 20)
    have_theirs.wait()
    for page in pages:
        libc.free(page)

first = resident()
threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - first)
"""


def processes_below(parent: int) -> Iterator[Path]:
    """What this process began, and what those began: other tests run Spark at the same time."""
    with suppress(OSError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield Path("/proc", child)
                yield from processes_below(int(child))


def workers_below(parent: int) -> Iterator[Path]:
    """The processes in which this test's Spark runs Python."""
    for process in processes_below(parent):
        with suppress(OSError):
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                yield process


def resident_bytes_of_workers() -> int:
    """The largest of them."""
    sizes = [0]
    for process in workers_below(os.getpid()):
        with suppress(OSError):
            sizes.append(int((process / "statm").read_text().split()[1]) * resource.getpagesize())
    return max(sizes)


@contextmanager
def peak_of_workers() -> Iterator[list[int]]:
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


def test_a_worker_that_reads_has_one_heap_whatever_threads_it_has(spark: SparkSession) -> None:
    """Arrow's thread took one before the source could forbid it: a worker held up to 400 MiB, and not 290."""

    def heaps(_: object) -> Iterator[int]:
        import pyarrow  # noqa: F401 - begins a thread that has a heap of its own if it can get one

        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        libc = ctypes.CDLL(None)
        libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
        libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
        with tempfile.NamedTemporaryFile() as told:
            file = libc.fopen(told.name.encode(), b"w")
            libc.malloc_info(0, file)
            libc.fclose(file)
            yield told.read().count(b"<heap nr=")

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(heaps).collect() == [1]
    with Endless(1) as node:  # its worker has no variables of the configuration, only those of the process above it
        frame = spark.read.format("walrus").option("bootstrap.servers", node.address).option("subscribe", TOPIC).load()
        assert frame.count() == 1
    environments = [(process / "environ").read_bytes().split(b"\0") for process in workers_below(os.getpid())]
    assert environments
    assert all(b"MALLOC_ARENA_MAX=1" in environment for environment in environments)


def printed(script: str) -> int:
    script = script.format(before="from pyspark_walrus.memory import keep_freed_memory; keep_freed_memory()")
    return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)


def test_memory_of_pages_that_were_read_is_used_again_and_not_mapped_anew() -> None:
    """A tenth of all that a task took went into pages of memory that the task before had given back."""
    faults = printed(_ROUNDS)
    assert faults < 100


def test_threads_that_had_memory_at_a_time_do_not_keep_it_each_for_itself() -> None:
    """A worker kept 64 MiB for each of its threads, so that some took twice the memory of others."""
    kept = printed(_THREADS)
    assert kept < 80 << 20
