"""`format("walrus")`: the source as Spark sees it, batch and streaming.

Only conversions between Spark's calls and the parts that decide (`offsets`, `plan`) and do (`cluster`,
`decode`). The stream's reader lives in one driver process for the whole query; tasks get a pickled copy,
so what is learnt while planning travels in the splits and nowhere else.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_walrus.cluster import chunks, look
from pyspark_walrus.layout import Layout
from pyspark_walrus.offsets import Offsets, check_reachable, check_same_topics, latest, resolve
from pyspark_walrus.options import LATEST, SourceOptions
from pyspark_walrus.plan import Split, next_end, plan_splits
from pyspark_walrus.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa


class WalrusDataSource(DataSource):
    """Topics of a Walrus cluster as rows. Options: `SourceOptions`; columns: `schema.COLUMNS`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "walrus"

    def schema(self) -> StructType:
        """The columns, with `headers` if asked for."""
        return spark_schema(headers=self._parsed.include_headers)

    def reader(self, schema: StructType) -> "BatchReader":  # noqa: ARG002 - Spark passes it by name
        """The reader of `spark.read`."""
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: ARG002, N802 - Spark's names
        """The reader of `spark.readStream`."""
        return StreamReader(self._parsed)


class BatchReader(DataSourceReader):
    """Reads a range of offsets once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting, self._ending = options.batch_range()

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of the whole range."""
        layout = look(self._options.bootstrap_servers, self._options.topics)
        start = resolve(self._starting, layout, option="startingOffsets")
        end = resolve(self._ending, layout, option="endingOffsets")
        return _plan(start, end, layout, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a split; runs in a task."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic as it grows, in micro-batches whose ends the checkpoint keeps."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting = options.stream_start()
        self._layout: Layout | None = None
        self._initial: Offsets | None = None
        self._pinned = False
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins. Spark asks twice, so the answer is kept."""
        if self._initial is None:
            self._initial = resolve(self._starting, self._look(), option="startingOffsets")
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark knows one limit at a time; `latestOffset` obeys both, whichever is named here."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the end of an AvailableNow run: what comes later is for the next run."""
        self._target = latest(self._look())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next micro-batch."""
        begin, layout = Offsets.from_json(start), self._look()
        check_same_topics(begin, layout)
        if self._options.fail_on_data_loss:
            check_reachable(begin, layout)
        if self._must_pin(begin):
            return start
        unlimited = isinstance(limit, ReadAllAvailable)
        end = next_end(
            begin,
            self._target or latest(layout),
            layout,
            offsets_max=None if unlimited else self._options.offsets_per_trigger_max,
            bytes_max=None if unlimited else self._options.bytes_per_trigger_max,
        )
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802 - Spark's name
        """The high watermarks as last seen, for the lag in Spark's progress reports."""
        return latest(self._layout).to_json() if self._layout is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of one micro-batch; after a failure Spark asks for the same range again."""
        begin, last = Offsets.from_json(start), Offsets.from_json(end)
        if begin == last:
            return []
        layout = self._layout
        if layout is None or not _covers(layout, last):
            layout = self._look()
        return _plan(begin, last, layout, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a split; runs in a task."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint alone says how far a query got."""

    def stop(self) -> None:
        """Nothing to do: no connection outlives a call."""

    def _look(self) -> Layout:
        self._layout = look(self._options.bootstrap_servers, self._options.topics)
        return self._layout

    def _must_pin(self, start: Offsets) -> bool:
        """Whether the first micro-batch has to be an empty one.

        Spark writes down the end of each micro-batch, but not where the first one begins. A query that
        starts at "latest" and fails in its first micro-batch would begin further on when it is started again,
        and skip records. An empty first micro-batch ends where the query begins, and that is written down.
        """
        moving = self._starting.everywhere == LATEST or LATEST in dict(self._starting.offsets).values()
        first = moving and not self._pinned and start == self._initial
        self._pinned = True
        return first


def _covers(layout: Layout, end: Offsets) -> bool:
    return all(
        topic not in layout
        or partition not in layout[topic].partitions
        or offset <= layout[topic].partitions[partition].high_watermark
        for (topic, partition), offset in end.next.items()
    )


def _plan(start: Offsets, end: Offsets, layout: Layout, options: SourceOptions) -> list[Split]:
    return plan_splits(
        start,
        end,
        layout,
        bytes_per_split_max=options.bytes_per_partition_max,
        splits_min=options.partitions_min,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _read(split: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    # Imported by the tasks only: the planning processes start faster without Arrow and the decoder.
    from pyspark_walrus.decode import record_batches

    if not isinstance(split, Split):
        return  # Spark runs one task even where there is nothing to read
    for piece in split.pieces:
        stored = chunks(piece, options.bootstrap_servers)
        yield from record_batches(stored, piece, headers=options.include_headers)
