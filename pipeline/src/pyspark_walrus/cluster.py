"""The only door to the brokers: asks for layouts and reads stored batches.

The client goes on at another node, or later, while nodes fail; so a query outlives the restart of a broker.
Its errors become errors of the source here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from walrus_client import Client, errors
from walrus_client.model import Partition, Segment, SegmentState

from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import Layout, PartitionLayout, SegmentLayout, TopicLayout, with_estimated_bytes
from pyspark_walrus.plan import Piece

# How long a query waits for a cluster that does not answer.
PATIENCE_MS: Final = 60_000
# How long a node may lack what the cluster said is readable: its metadata may lag behind.
LAG_MS_MAX: Final = 10_000
ANSWER_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Chunk:
    """Batches back to back that hold the records `[start, end)`, perhaps with others around them."""

    start: int
    end: int
    batches: bytes


def look(bootstrap_servers: Sequence[str], topics: Sequence[str]) -> Layout:
    """The topics as they are now; raises TOPIC_NOT_FOUND or BROKER_UNREACHABLE."""
    with _client(bootstrap_servers) as client:
        try:
            partitions = {topic: client.segments(topic) for topic in topics}
            # Asked last: of a topic that is made again meanwhile this gives the new uuid with old segments,
            # which cannot be read; the other way round the old uuid would come with new records.
            uuids = {topic.name: topic.uuid for topic in client.topics(internal=True)}
            return {topic: _topic_layout(topic, uuids[topic], partitions[topic]) for topic in topics}
        except (errors.UnknownTopic, KeyError):
            message = f"at least one of these topics does not exist: {', '.join(topics)}"
            raise SourceError(Reason.TOPIC_NOT_FOUND, message, topics=topics) from None
        except errors.WalrusError as error:
            message = f"no broker could tell about the topics: {error}"
            raise SourceError(Reason.BROKER_UNREACHABLE, message, servers=bootstrap_servers) from None


def chunks(piece: Piece, bootstrap_servers: Sequence[str]) -> Iterator[Chunk]:
    """The batches of a piece in offset order, from a node that has them; together exactly its range.

    Raises DATA_LOSS if records are gone, SEGMENT_CORRUPT if they are damaged, SEGMENT_UNAVAILABLE if nobody
    could serve them in time.
    """
    position = piece.start
    with _client(dict.fromkeys((*piece.addresses, *bootstrap_servers))) as client:
        pages = client.read_batches(
            piece.topic,
            piece.partition,
            piece.start,
            end_offset=piece.end,
            wait_ms=LAG_MS_MAX,
            bytes_max=ANSWER_BYTES,
            segment=piece.segment,
        )
        try:
            for page in pages:
                end = min(page.next_offset, piece.end)
                if end > position:
                    yield Chunk(position, end, page.batches)
                    position = end
        except errors.WalrusError as error:
            raise _failed(piece, position, error) from None
    if position < piece.end:
        raise SourceError(
            Reason.DATA_LOSS,
            f"topic {piece.topic} ended before the range to read",
            **_facts(piece, position),
        )


def _client(servers: "Sequence[str] | dict[str, None]") -> Client:
    return Client(",".join(servers), retry_timeout_ms=PATIENCE_MS)


def _failed(piece: Piece, position: int, error: errors.WalrusError) -> SourceError:
    match error:
        case errors.CorruptionError():
            reason, message = Reason.SEGMENT_CORRUPT, "has a damaged segment"
        case errors.RetryableError() | errors.OutcomeUnknown():
            reason, message = Reason.SEGMENT_UNAVAILABLE, "could not be read"
        case _:
            reason, message = Reason.DATA_LOSS, "no longer holds the range to read"
    return SourceError(reason, f"topic {piece.topic} {message}: {error}", **_facts(piece, position))


def _facts(piece: Piece, position: int) -> dict[str, object]:
    return {
        "topic": piece.topic,
        "partition": piece.partition,
        "segment": piece.segment,
        "start": position,
        "end": piece.end,
        "nodes": piece.addresses,
    }


def _topic_layout(topic: str, uuid: str, partitions: Sequence[Partition]) -> TopicLayout:
    return with_estimated_bytes(
        TopicLayout(
            topic,
            uuid,
            {
                partition.partition: PartitionLayout(
                    partition.log_start,
                    partition.high_watermark,
                    tuple(_segment_layout(segment) for segment in partition.segments),
                )
                for partition in partitions
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
    )
