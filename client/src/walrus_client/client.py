"""The client of a Walrus cluster: topics, appends and reads over gRPC, from any node of it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from walrus_client import errors
from walrus_client.model import (
    PLACES,
    Appended,
    BatchPage,
    FoundOffset,
    Group,
    GroupDescription,
    GroupKind,
    OffsetPlace,
    Partition,
    Record,
    Topic,
    TopicDescription,
    TopicSegments,
)
from walrus_client.outbox import OutRecord, Target
from walrus_client.producer import OnDelivery, Producer, as_records
from walrus_client.sender import ProducerOptions, Sender
from walrus_client.transport import (
    ADD_PARTITIONS,
    ALTER_TOPIC,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_RECORDS,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    LIST_GROUPS,
    LIST_NODES,
    LIST_OFFSETS,
    LIST_SEGMENTS,
    LIST_TOPICS,
    READ,
    RESET_GROUP,
    Method,
    Page,
    Pause,
    Request,
    Response,
    Transport,
    parse_addresses,
)
from walrus_client.v1 import log_pb2

SettingValue = str | int | float | bool


class Client:
    """A connection to a cluster, through the nodes of *bootstrap* (`host:grpc_port[,host:grpc_port...]`).

    Any node takes any request, and one that cannot be reached is left for the next. The addresses of all are asked of
    whoever answers, each ten seconds while there is something to do; those that were given stay the last resort.
    Whatever may pass is tried again for `retry_timeout_ms`, then its error is raised; with 0 there is one try, which
    waits `request_timeout_ms` for its answer. Safe to use from many threads; connects at the first request.

        with Client("127.0.0.1:9090") as client:
            client.create_topic("greetings")
            client.append("greetings", [b"hello"])
            for record in client.read("greetings"):
                print(record.offset, record.value)
    """

    def __init__(self, bootstrap: str, *, retry_timeout_ms: int = 30_000, request_timeout_ms: int = 15_000) -> None:
        self._transport = Transport(parse_addresses(bootstrap))
        self._retry_timeout_s = retry_timeout_ms / 1000
        self._request_timeout_s = request_timeout_ms / 1000
        self._lock = threading.Lock()
        self._sender: Sender | None = None  # sends what `append` takes; the first append makes it
        self._closed = False

    def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, SettingValue] | None = None
    ) -> Topic:
        """Creates a topic; one that is there with as many partitions and these settings is fine. Durable on return.

        *config* are settings of its own, by name. Raises InvalidConfig with a wrong one, TopicExists where it differs.
        """
        request = log_pb2.CreateTopicRequest(topic=topic, partitions=partitions, config=_settings(config or {}))
        return Topic.parse(self._call(CREATE_TOPIC, request).topic)

    def add_partitions(self, topic: str, partitions: int) -> Topic:
        """Gives a topic more partitions while records flow, so that it has *partitions*. Durable on return.

        One that has as many stays as it is; raises RejectedError where it has more, for none is ever taken away. Which
        partition a key goes to depends on their number: a producer goes on with those that it saw when it was made.
        """
        request = log_pb2.AddPartitionsRequest(topic=topic, partitions=partitions)
        return Topic.parse(self._call(ADD_PARTITIONS, request).topic)

    def describe_topic(self, topic: str) -> TopicDescription:
        """A topic with all its settings as they are in force, and where each comes from."""
        return TopicDescription.parse(self._call(DESCRIBE_TOPIC, log_pb2.DescribeTopicRequest(topic=topic)))

    def alter_topic(
        self,
        topic: str,
        config: Mapping[str, SettingValue] | None = None,
        *,
        unset: Iterable[str] = (),
        expect_version: int | None = None,
    ) -> TopicDescription:
        """Sets some settings of a topic and takes others back to their defaults, all or none.

        Durable on return, which is what is in force then; `docs/reference/topics.md` says when each acts. Raises
        InvalidConfig with a wrong one.
        With *expect_version* raises VersionMismatch where the settings have another one; there is one try then, for
        after an answer that was lost nobody could tell its own change from somebody else's.
        """
        request = log_pb2.AlterTopicRequest(
            topic=topic, set=_settings(config or {}), unset=unset, expect_version=expect_version
        )
        if expect_version is None:
            return TopicDescription.parse(self._call(ALTER_TOPIC, request))
        now = time.monotonic()
        answer = self._transport.call_until(ALTER_TOPIC, request, timeout_s=self._request_timeout_s, deadline=now)
        return TopicDescription.parse(answer)

    def delete_records(self, topic: str, before: Mapping[int, int | None]) -> dict[int, int]:
        """Deletes the records of partitions below an offset (None: all that are acknowledged), in all of them or none.

        On return nobody reads them any more; their space is freed a little later, by whole segments. Answers with the
        first offset that each partition has now: a start never moves back. Raises OffsetOutOfRange behind the end of
        a partition.
        """
        starts = [log_pb2.PartitionStart(partition=partition, offset=offset) for partition, offset in before.items()]
        answer = self._call(DELETE_RECORDS, log_pb2.DeleteRecordsRequest(topic=topic, starts=starts))
        return {start.partition: start.offset for start in answer.starts}

    def list_offsets(self, topic: str, at: Mapping[int, OffsetPlace | int]) -> dict[int, FoundOffset]:
        """The offsets of partitions at points of time: where a consumer begins that wants what came since.

        A number is a time in milliseconds since the epoch, and stands for the first record that is not older, of all
        that are kept; records need not be in the order of their timestamps. Raises the first error of a partition that
        does not pass within `retry_timeout_ms`.
        """
        pause = Pause()
        deadline = time.monotonic() + self._retry_timeout_s
        found: dict[int, FoundOffset] = {}
        while True:
            left = [partition for partition in at if partition not in found]
            questions = [_offset_question(partition, at[partition]) for partition in left]
            answer = self._call(LIST_OFFSETS, log_pb2.ListOffsetsRequest(topic=topic, questions=questions))
            failure: errors.WalrusError | None = None
            for answered in answer.answers:
                if not answered.HasField("error"):
                    found[answered.partition] = FoundOffset.parse(answered)
                elif failure is None or answered.error.retryable is False:
                    failure = errors.from_message(answered.error)
            if failure is None:
                return {partition: found[partition] for partition in at}
            if not isinstance(failure, errors.RetryableError) or not pause.sleep_before(deadline):
                raise failure

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic with all its records; raises UnknownTopic where there is none.

        Only the topic that has the name at the call: one that somebody makes meanwhile under this name stays.
        """
        uuid = self.describe_topic(topic).topic.uuid
        # Where an answer was lost the topic may be gone already.
        with contextlib.suppress(errors.UnknownTopic):
            self._call(DELETE_TOPIC, log_pb2.DeleteTopicRequest(topic=topic, uuid=uuid))

    def topics(self, *, internal: bool = False) -> list[Topic]:
        """The topics of the cluster by name; with *internal* also those that Walrus keeps for itself."""
        answer = self._call(LIST_TOPICS, log_pb2.ListTopicsRequest(internal=internal))
        return [Topic.parse(topic) for topic in answer.topics]

    def groups(self) -> list[Group]:
        """The consumer groups of Kafka's clients by name, and behind them the shared cursors of topics (`GET`)."""
        return [Group.parse(group) for group in self._call(LIST_GROUPS, log_pb2.ListGroupsRequest()).groups]

    def describe_group(self, name: str, kind: GroupKind = GroupKind.CONSUMER) -> GroupDescription:
        """A consumer group, or the shared cursor of the topic *name*: its members, and how far it has read.

        Raises UnknownGroup where there is none.
        """
        request = log_pb2.DescribeGroupRequest(name=name, kind=kind.message)
        return GroupDescription.parse(self._call(DESCRIBE_GROUP, request))

    def reset_group(self, name: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Moves a consumer group to these offsets of a topic's partitions; durable on return.

        Makes a group that is not there.

        Raises GroupHasMembers while it is in use.
        """
        starts = [log_pb2.PartitionStart(partition=partition, offset=offset) for partition, offset in offsets.items()]
        self._call(RESET_GROUP, log_pb2.ResetGroupRequest(name=name, topic=topic, starts=starts))

    def delete_group(self, name: str) -> None:
        """Forgets a consumer group with all that it has committed; durable on return.

        Raises UnknownGroup where there is none, GroupHasMembers while it is in use.
        """
        self._call(DELETE_GROUP, log_pb2.DeleteGroupRequest(name=name))

    def segments(self, topic: str) -> list[Partition]:
        """The partitions of a topic: what is readable, and their segments by base offset."""
        return list(self.topic_segments(topic).partitions)

    def topic_segments(self, topic: str) -> TopicSegments:
        """A topic, its partitions and their segments, of one moment: the uuid is that of the segments' topic."""
        answer = self._call(LIST_SEGMENTS, log_pb2.ListSegmentsRequest(topic=topic))
        return TopicSegments.parse(answer)

    def cluster_id(self) -> str:
        """The uuid of the cluster that answers."""
        return self._call(LIST_NODES, log_pb2.ListNodesRequest()).cluster_id

    def prefer(self, address: str) -> None:
        """Sends the next requests to the node at *address* (`host:grpc_port`), as long as it serves them: where the
        records of a segment lie, as `segments` says, they need not be fetched from another node.
        """
        self._transport.prefer(address)

    def append(self, topic: str, records: Iterable[OutRecord | bytes], *, partition: int = 0) -> Appended:
        """Appends records as one batch, all or none; they are durable on return, at the offsets of the answer.

        Tries again for `retry_timeout_ms`, or if that is 0 for `request_timeout_ms`, and stores them once however often
        it had to. Raises RejectedError or RetryableError (not stored), or OutcomeUnknown. For many records use
        `producer`.
        """
        rows = as_records(records)
        self._transport.origin.check()
        with self._lock:
            if self._closed:
                raise errors.Closed("this client is closed")
            if self._sender is None:
                patience_ms = int((self._retry_timeout_s or self._request_timeout_s) * 1000)
                self._sender = Sender(self._transport, ProducerOptions(linger_ms=0, delivery_timeout_ms=patience_ms))
            sender = self._sender
        return sender.add_batch(Target(topic, partition), rows).delivery.result()

    def producer(
        self, topic: str, *, on_delivery: OnDelivery | None = None, options: ProducerOptions | None = None
    ) -> Producer:
        """A producer for many records of *topic*; close it before the client.

        *on_delivery* is called with the done future of each batch, from the producer's thread: it must not block.
        """
        return Producer(
            self._transport,
            topic=topic,
            partition_count=self._partition_count(topic),
            options=options or ProducerOptions(),
            on_delivery=on_delivery,
        )

    def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        end_offset: int | None = None,
        wait_ms: int = 0,
        bytes_max: int = 0,
        segment: str | None = None,
    ) -> Iterator[Record]:
        """The records of a partition from *offset* on, in order, each once, until *end_offset* or the high watermark.

        With *wait_ms* it follows the log, and ends only when nothing new came for so long. Goes on at another node
        after a failure, and where one gives no answer for `request_timeout_ms` behind *wait_ms*. *bytes_max* bounds
        each answer of the node (0: 1 MiB), *segment* (a uuid) what is read.
        """
        request = _read_request(topic, partition, offset, end_offset, wait_ms, bytes_max, segment, batches=False)
        for page in self._pages(request, READ.response.FromString):
            yield from map(Record.parse, page.records)

    def read_batches(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        end_offset: int | None = None,
        wait_ms: int = 0,
        bytes_max: int = 0,
        segment: str | None = None,
    ) -> Iterator[BatchPage]:
        """The same as `read`, as Kafka RecordBatches v2 the way they are stored, not decoded."""
        request = _read_request(topic, partition, offset, end_offset, wait_ms, bytes_max, segment, batches=True)
        return self._pages(request, BatchPage.parse)

    def close(self) -> None:
        """Ends all connections; what is asked of the client from then on raises Closed."""
        self._transport.origin.check()
        with self._lock:
            self._closed = True
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()  # its failures were raised by `append`
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transport.origin.is_here():  # a child that leaves the block of its parent has nothing to close
            self.close()

    def _call(self, method: Method[Request, Response], request: Request) -> Response:
        deadline = time.monotonic() + self._retry_timeout_s
        return self._transport.call_until(method, request, timeout_s=self._request_timeout_s, deadline=deadline)

    def _partition_count(self, topic: str) -> int:
        try:
            return len(self.segments(topic))
        except errors.UnknownTopic:
            return 1  # the first append creates the topic with one, where the cluster allows that

    def _pages(self, request: log_pb2.ReadRequest, parse: Callable[[bytes], Page]) -> Iterator[Page]:
        pause = Pause()
        deadline = time.monotonic() + self._retry_timeout_s
        silence_s = request.wait_ms / 1000 + self._request_timeout_s
        while True:
            try:
                self._transport.refresh_when_old()
                for page in self._transport.read(request, parse, silence_s=silence_s):
                    request.offset = page.next_offset  # where another node is asked to go on
                    yield page
                    pause.reset()
                    deadline = time.monotonic() + self._retry_timeout_s
                return
            except (errors.RetryableError, errors.OutcomeUnknown):
                if not pause.sleep_before(deadline):
                    raise


def _settings(config: Mapping[str, SettingValue]) -> dict[str, str]:
    """Settings as brokers take them; a bool is a number in Python, and a word there."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}


def _offset_question(partition: int, at: OffsetPlace | int) -> log_pb2.OffsetQuestion:
    if isinstance(at, OffsetPlace):
        return log_pb2.OffsetQuestion(partition=partition, place=PLACES[at])
    return log_pb2.OffsetQuestion(partition=partition, timestamp_ms=at)


def _read_request(
    topic: str,
    partition: int,
    offset: int,
    end_offset: int | None,
    wait_ms: int,
    bytes_max: int,
    segment: str | None,
    *,
    batches: bool,
) -> log_pb2.ReadRequest:
    return log_pb2.ReadRequest(
        topic=topic,
        partition=partition,
        offset=offset,
        end_offset=end_offset,
        wait_ms=wait_ms,
        bytes_max=bytes_max,
        segment=segment,
        format=log_pb2.FORMAT_BATCHES if batches else log_pb2.FORMAT_RECORDS,
    )
