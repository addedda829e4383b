"""What tests of archives share: what a reader of Parquet finds, and waiting for what a run does."""

import time

import pyarrow.dataset

# In which a Spark of its own has surely started, whatever else the machine has to do.
STARTED_S = 240


def offsets_in(folder):
    """The offsets that a reader of Parquet finds that knows nothing of Spark, in ascending order."""
    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []


def wait_until(what, condition, *, timeout_s=STARTED_S):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.002)
