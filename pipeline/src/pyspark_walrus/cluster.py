"""The only door to the brokers: asks for layouts and reads stored batches.

The client goes on at another node, or later, while nodes fail; so a query outlives the restart of a broker.
Its errors become errors of the source here.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType
from typing import Final, Self

from walrus_client import BatchPage, Client, Segment, SegmentState, TopicSegments, errors
from walrus_client.transport import Pause

from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import Layout, PartitionLayout, SegmentLayout, TopicLayout, with_estimated_bytes
from pyspark_walrus.losses import Losses
from pyspark_walrus.offsets import Offsets, partitions
from pyspark_walrus.plan import Piece, plan_range

# How long a query waits for a cluster that does not answer.
PATIENCE_MS: Final = 60_000
# How long a node may lack what the cluster said is readable: its metadata may lag behind.
LAG_MS_MAX: Final = 10_000
ANSWER_BYTES: Final = 4 << 20
# The first answer is there sooner than one of megabytes is through all copies on its way: decoding begins with it.
FIRST_ANSWER_BYTES: Final = 256 << 10


@dataclass(frozen=True)
class Chunk:
    """Batches back to back that hold the records `[start, end)`, perhaps with others around them."""

    start: int
    end: int
    batches: memoryview


class _EndedEarlyError(Exception):
    """A read ended where more should be."""


class Cluster:
    """The brokers as one query, or the tasks of a worker, see them. Connects when first asked and stays connected."""

    def __init__(self, bootstrap_servers: Sequence[str]) -> None:
        self._servers = tuple(bootstrap_servers)
        self._client = Client(",".join(self._servers), retry_timeout_ms=PATIENCE_MS)

    def uuid(self) -> str:
        """The cluster's; raises BROKER_UNREACHABLE."""
        try:
            return self._client.cluster_id()
        except errors.WalrusError as error:
            message = f"no broker could tell which cluster this is: {error}"
            raise SourceError(Reason.BROKER_UNREACHABLE, message, servers=self._servers) from None

    def look(self, topics: Iterable[str]) -> Layout:
        """Those of the topics that exist, as they are now; raises BROKER_UNREACHABLE."""
        layout = {}
        for topic in sorted(topics):
            try:
                layout[topic] = _topic_layout(self._client.topic_segments(topic))
            except errors.UnknownTopic:
                continue
            except errors.WalrusError as error:
                raise self._unreachable(topic, error) from None
        return layout

    def confirmed(self, layout: Layout, reached: Offsets) -> Layout:
        """The layout with ends that are sure, where `reached` lies behind what it says.

        A node whose metadata lag behind names an earlier end. Asked for what lies behind that, it finds out: either
        the records are there, and it is looked at again, or a leader that knows its end refuses. Raises
        BROKER_UNREACHABLE where neither comes.
        """
        pause, deadline = Pause(), time.monotonic() + LAG_MS_MAX / 1000
        while True:
            stale = set()
            for (topic, number), partition in list(partitions(layout)):
                offset = reached.next.get((topic, number), 0)
                if offset <= partition.high_watermark or reached.ids.get(topic) != layout[topic].uuid:
                    continue
                end = self._end(topic, number, offset)
                if end is None:
                    stale.add(topic)
                else:
                    sure = replace(partition, high_watermark=max(end, partition.log_start))
                    there = layout[topic]
                    layout = {**layout, topic: replace(there, partitions={**there.partitions, number: sure})}
                    reached = replace(reached, next={**reached.next, (topic, number): sure.high_watermark})
            if not stale:
                return layout
            if not pause.sleep_before(deadline):
                raise self._unreachable(min(stale), "its metadata lag behind")
            layout = {**{name: there for name, there in layout.items() if name not in stale}, **self.look(stale)}

    def chunks(self, piece: Piece, losses: Losses) -> Iterator[Chunk]:
        """The batches of a piece in offset order, from a node that has them; together exactly its range.

        What retention took since the range was planned is left out if the query accepts that. Raises DATA_LOSS, or
        SEGMENT_CORRUPT if records are damaged, SEGMENT_UNAVAILABLE if nobody could serve them in time.
        """
        waiting = [piece]
        refused_at: int | None = None
        while waiting:
            wanted = waiting.pop(0)
            position = wanted.start
            try:
                for chunk in self._pages(wanted):
                    yield chunk
                    position = chunk.end
            except (errors.RejectedError, _EndedEarlyError) as error:
                if refused_at == position:  # a new look has changed nothing
                    raise _unavailable(wanted, position, error) from None
                refused_at = position
                rest = replace(wanted, start=position)
                waiting = [*self._planned_anew(rest, losses), *waiting]
            except errors.CorruptionError as error:
                message = f"topic {piece.topic} has a damaged segment: {error}"
                raise SourceError(Reason.SEGMENT_CORRUPT, message, **_facts(wanted, position)) from None
            except errors.WalrusError as error:
                raise _unavailable(wanted, position, error) from None

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _pages(self, piece: Piece) -> Iterator[Chunk]:
        if piece.addresses:
            self._client.prefer(piece.addresses[0])
        position = piece.start
        for count, bytes_max in ((1, FIRST_ANSWER_BYTES), (None, ANSWER_BYTES)):
            before = position
            for page in islice(self._answers(piece, position, bytes_max), count):
                end = min(page.next_offset, piece.end)
                if end > position:
                    yield Chunk(position, end, page.batches)
                    position = end
            if position >= piece.end:
                return
            if position == before:
                break
        raise _EndedEarlyError("the segment ends before the range to read")

    def _answers(self, piece: Piece, position: int, bytes_max: int) -> Iterator[BatchPage]:
        return self._client.read_batches(
            piece.topic,
            piece.partition,
            position,
            end_offset=piece.end,
            wait_ms=LAG_MS_MAX,
            bytes_max=bytes_max,
            segment=piece.segment,
        )

    def _planned_anew(self, rest: Piece, losses: Losses) -> list[Piece]:
        """What is left of a piece that was refused, and faces what is lost of it."""
        key = (rest.topic, rest.partition)
        start, end = (Offsets({rest.topic: rest.topic_uuid}, {key: offset}) for offset in (rest.start, rest.end))
        layout = self.confirmed(self.look([rest.topic]), end)
        plan = plan_range(start, end, layout, bytes_per_split_max=max(1, rest.bytes), splits_min=1)
        losses.face(plan.losses)
        return [piece for split in plan.splits for piece in split.pieces]

    def _end(self, topic: str, partition: int, offset: int) -> int | None:
        """The end of a partition if it lies before `offset`."""
        try:
            next(iter(self._client.read_batches(topic, partition, offset, end_offset=offset)), None)
        except errors.OffsetOutOfRange as error:
            return error.end
        except errors.UnknownTopic:
            return None  # the next look finds out
        except errors.WalrusError as error:
            raise self._unreachable(topic, error) from None
        return None

    def _unreachable(self, topic: str, problem: object) -> SourceError:
        message = f"no broker could tell about topic {topic}: {problem}"
        return SourceError(Reason.BROKER_UNREACHABLE, message, servers=self._servers)


# The cluster that the last task of this process read, by the process and the addresses.
_kept: dict[tuple[int, tuple[str, ...]], Cluster] = {}


@contextmanager
def of_this_worker(bootstrap_servers: Sequence[str]) -> Iterator[Cluster]:
    """The brokers for one task, which is connected already if this process ran a task for them before.

    A worker of Spark runs one task after another, and to connect takes longer than to read the first page. One
    cluster is kept, and none of a task that failed or was given up: the next one begins anew.
    """
    key = (os.getpid(), tuple(bootstrap_servers))
    cluster = _kept.pop(key, None) or Cluster(bootstrap_servers)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    while _kept:
        (process, _), other = _kept.popitem()
        if process == key[0]:  # the parent's is not ours to close
            other.close()
    _kept[key] = cluster


def _unavailable(piece: Piece, position: int, error: Exception) -> SourceError:
    message = f"topic {piece.topic} could not be read: {error}"
    return SourceError(Reason.SEGMENT_UNAVAILABLE, message, **_facts(piece, position))


def _facts(piece: Piece, position: int) -> dict[str, object]:
    return {
        "topic": piece.topic,
        "partition": piece.partition,
        "segment": piece.segment,
        "start": position,
        "end": piece.end,
        "nodes": piece.addresses,
    }


def _topic_layout(found: TopicSegments) -> TopicLayout:
    return with_estimated_bytes(
        TopicLayout(
            found.topic.name,
            found.topic.uuid,
            {
                partition.partition: PartitionLayout(
                    partition.log_start,
                    partition.high_watermark,
                    tuple(_segment_layout(segment) for segment in partition.segments),
                )
                for partition in found.partitions
            },
        )
    )


def _segment_layout(segment: Segment) -> SegmentLayout:
    sealed = segment.state is SegmentState.SEALED
    leader = (segment.leader,) if segment.leader is not None else ()
    nodes = (*segment.replicas, *leader) if sealed else (*leader, *segment.replicas)
    best_first = sorted(nodes, key=lambda node: not node.alive)  # stable: of equals the better one stays first
    return SegmentLayout(
        segment.uuid,
        segment.base_offset,
        segment.end_offset,
        sealed,
        tuple(dict.fromkeys(node.grpc_address for node in best_first if node.grpc_address)),
        segment.bytes,
        tuple((start.epoch, start.first_offset) for start in segment.epochs),
    )
