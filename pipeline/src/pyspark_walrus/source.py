"""`format("walrus")`: the source as Spark sees it, batch and streaming.

Only conversions between Spark's calls and the parts that decide (`offsets`, `plan`) and do (`cluster`,
`decode`). The stream's reader lives in one driver process for the whole query; tasks get a pickled copy,
so what is learnt while planning travels in the splits and nowhere else.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
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

from pyspark_walrus.cluster import Cluster, of_this_worker
from pyspark_walrus.layout import Layout
from pyspark_walrus.losses import Cause, Losses
from pyspark_walrus.memory import keep_freed_memory, spare_modules_from_collections
from pyspark_walrus.offsets import (
    Offsets,
    TopicPartition,
    check_bound,
    check_found,
    check_order,
    check_same_topics,
    furthest,
    latest,
    partitions,
    resolve,
)
from pyspark_walrus.options import SourceOptions
from pyspark_walrus.plan import Piece, Plan, Split, changed_topics, next_end, plan_range, replaced, unreachable
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
        with Cluster(self._options.bootstrap_servers) as cluster:
            layout = cluster.look(self._options.topics)
            check_found(self._options.topics, layout)
            layout = cluster.confirmed(layout, resolve(self._ending, layout))
        check_bound(self._starting, layout, option="startingOffsets")
        check_bound(self._ending, layout, option="endingOffsets")
        start, end = resolve(self._starting, layout), resolve(self._ending, layout)
        check_order(start, end)
        return list(_plan(start, end, layout, self._options).splits)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a split; runs in a task."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow, in micro-batches whose ends the checkpoint keeps.

    Spark writes down where a micro-batch ends, and never where the first one begins. So the first micro-batch of
    every query is empty: its end is where the query begins. Whatever happens to the topics meanwhile, the query goes
    on from there, or says what is gone.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting = options.stream_start()
        self._losses = Losses(fail=options.fail_on_data_loss)
        self._cluster: Cluster | None = None
        self._layout: Layout = {}
        self._initial: Offsets | None = None
        self._began = False
        self._target: Offsets | None = None
        self._planned: dict[TopicPartition, tuple[Piece, ...]] = {}  # what tasks last got of each partition
        self._cut_off_at: dict[TopicPartition, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What the tasks get: what was learnt while planning travels in the splits."""
        return {"_options": self._options}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins. Spark asks twice, so the answer is kept.

        It asks as well after a first micro-batch that failed; `partitions` then hears of the end that was written down.
        """
        if self._initial is None:
            self._initial = resolve(self._starting, self._look_at_subscribed())
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark knows one limit at a time; `latestOffset` obeys both, whichever is named here."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the end of an AvailableNow run: what comes later, in new partitions as well, is for the next run."""
        self._target = latest(self._look_at_subscribed())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next micro-batch."""
        begin, layout = Offsets.from_json(start), self._look_at_subscribed()
        check_same_topics(begin, layout)
        if begin == self._initial and not self._began:
            check_bound(self._starting, layout, option="startingOffsets")
            self._began = True
            return start
        layout = self._connected().confirmed(layout, furthest(begin, self._target or begin))
        behind = self._ends_before(begin, layout)
        if behind:  # what was appended there since is read from the next micro-batch on
            return Offsets(begin.ids, {**begin.next, **behind}).to_json()
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
        """The high watermarks as last seen, for the lag in Spark's progress reports, and losses that were accepted."""
        if not self._layout:
            return None
        lost = [loss.to_json() for loss in self._losses.to_report()]
        return {**latest(self._layout).to_json(), **({"lost": lost} if lost else {})}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of one micro-batch; after a failure Spark asks for the same range again.

        A range is planned from the topics that it names, whether the query still subscribes to them or not.
        """
        begin, last = Offsets.from_json(start), Offsets.from_json(end)
        self._losses.batch_follows()
        if begin == self._initial and not self._began:  # the first micro-batch again, whose start is not the same now
            self._began = True
            return []
        topics = changed_topics(begin, last)
        if not topics:
            return []
        layout = self._layout
        if not (topics <= layout.keys() and _covers(layout, last)):
            cluster = self._connected()
            layout = cluster.confirmed(cluster.look(topics), last)
        plan = _plan(begin, last, layout, self._options)
        for loss in plan.losses:
            if loss.cause is Cause.CUT_OFF:
                self._cut_off_at[loss.key] = loss.start
        self._losses.face(plan.losses)
        pieces = [piece for split in plan.splits for piece in split.pieces]
        for key, run in groupby(pieces, key=lambda piece: (piece.topic, piece.partition)):
            self._planned[key] = tuple(run)
        return list(plan.splits)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a split; runs in a task."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint alone says how far a query got."""

    def stop(self) -> None:
        """Ends the query's connection to the brokers."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _ends_before(self, begin: Offsets, layout: Layout) -> dict[TopicPartition, int]:
        """Where partitions go on that lost their ends since they were planned, or while tasks were reading them.

        Tasks cannot tell the driver what they skipped. It sees it, too: at offsets that they read lie other segments.
        """
        ends, self._cut_off_at = self._cut_off_at, {}
        losses = [*replaced(chain.from_iterable(self._planned.values()), layout), *unreachable(begin, layout)]
        self._losses.face(loss for loss in losses if loss.cause is Cause.TRIMMED or loss.key not in ends)
        for loss in losses:
            if loss.cause is Cause.CUT_OFF:
                ends[loss.key] = min(loss.start, ends.get(loss.key, loss.start))
                self._planned.pop(loss.key, None)
        return {key: end for key, end in ends.items() if end < begin.next.get(key, 0)}

    def _look_at_subscribed(self) -> Layout:
        layout = self._connected().look(self._options.topics)
        check_found(self._options.topics, layout)
        self._layout = layout
        return layout

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.bootstrap_servers)
        return self._cluster


def _covers(layout: Layout, end: Offsets) -> bool:
    return all(
        key not in end.next or end.next[key] <= partition.high_watermark for key, partition in partitions(layout)
    )


def _plan(start: Offsets, end: Offsets, layout: Layout, options: SourceOptions) -> Plan:
    return plan_range(
        start,
        end,
        layout,
        bytes_per_split_max=options.bytes_per_partition_max,
        splits_min=options.partitions_min,
    )


def _read(split: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    # Imported by the tasks only: the planning processes start faster without Arrow and the decoder.
    from pyspark_walrus.decode import record_batches

    if not isinstance(split, Split):
        return  # Spark runs one task even where there is nothing to read
    losses = Losses(fail=options.fail_on_data_loss)
    is_worker = TaskContext.get() is not None
    if is_worker:
        keep_freed_memory()
    with of_this_worker(options.bootstrap_servers) as cluster:
        chunks = chain.from_iterable(cluster.chunks(piece, losses) for piece in split.pieces)
        yield from record_batches(chunks, split, headers=options.include_headers)
    if is_worker:
        spare_modules_from_collections()
