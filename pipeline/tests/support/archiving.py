"""What tests of archives share: what a reader of Parquet finds, and how long a run may take."""

import pyarrow.dataset

# In which a Spark of its own has surely started, whatever else the machine has to do.
STARTED_S = 240


def offsets_in(folder):
    """The offsets that a reader of Parquet finds that knows nothing of Spark, in ascending order."""
    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []
