"""A Spark source that does nothing but hand over Arrow batches that are ready: what any source in Python can reach."""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from pyspark_walrus.schema import spark_schema


@dataclass(frozen=True)
class Rows(InputPartition):
    """How many rows a task hands over."""

    count: int


class ReadyBatches(DataSource):
    """The batch in the file `path` (Arrow IPC), again and again: `rows` in all, from `tasks` tasks."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._reader = ReadyReader(Path(options["path"]), int(options["rows"]), int(options["tasks"]))

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return spark_schema(headers=False)

    def reader(self, schema: StructType) -> "ReadyReader":  # noqa: ARG002 - Spark passes it by name
        return self._reader


@dataclass(frozen=True)
class ReadyReader(DataSourceReader):
    """Hands the batch over."""

    path: Path
    rows: int
    tasks: int

    def partitions(self) -> Sequence[InputPartition]:
        share = self.rows // self.tasks
        return [Rows(share)] * (self.tasks - 1) + [Rows(self.rows - share * (self.tasks - 1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        with pa.memory_map(str(self.path)) as file:
            (ready,) = pa.ipc.open_file(file).read_all().to_batches()
        left = partition.count
        while left > 0:
            batch = ready.slice(0, left)
            left -= batch.num_rows
            yield batch


def keep(batch: pa.RecordBatch, path: Path) -> None:
    """Writes the batch for `ReadyBatches`."""
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
