"""A peer for the client: a gRPC server that keeps batches as a broker does, and fails the way networks and brokers do.

It is written from `proto/walrus/v1/log.proto` alone, with nothing of the client but the generated messages.
"""

import json
import socket
import socketserver
import struct
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import NoReturn

import grpc
import pytest
from walrus_client.v1 import log_pb2, log_pb2_grpc


@dataclass
class StoredBatch:
    base_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    records: list[log_pb2.Record]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)


@dataclass
class StoredPartition:
    batches: list[StoredBatch] = field(default_factory=list)
    last_five: dict[int, deque[StoredBatch]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=5)))

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0


class Storage:
    """What a cluster keeps; several `LogPeer`s may serve it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.topics: dict[str, log_pb2.Topic] = {}
        self.partitions: dict[tuple[str, int], StoredPartition] = {}
        self.producer_ids = 1000

    def wake(self) -> None:
        """Has those that wait for a change look again."""
        with self.lock:
            self.changed.notify_all()

    def create(self, name: str, partitions: int) -> bool:
        with self.lock:
            if name in self.topics:
                return False
            self.topics[name] = log_pb2.Topic(name=name, uuid=f"uuid-{name}", partitions=partitions)
            for partition in range(partitions):
                self.partitions[name, partition] = StoredPartition()
            return True

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        with self.lock:
            batches = self.partitions[topic, partition].batches
            return [record.value for batch in batches for record in batch.records]

    def offset_at(self, topic: str, question: log_pb2.OffsetQuestion) -> log_pb2.OffsetAnswer:
        answer = log_pb2.OffsetAnswer(partition=question.partition)
        batches = self.partitions[topic, question.partition].batches
        records = [record for batch in batches for record in batch.records]
        if question.place == log_pb2.OffsetQuestion.PLACE_EARLIEST:
            answer.offset = 0
        elif question.place == log_pb2.OffsetQuestion.PLACE_LATEST:
            answer.offset = len(records)
        else:
            newest = max((record.timestamp_ms for record in records), default=0)
            wanted = question.timestamp_ms if question.WhichOneof("at") == "timestamp_ms" else newest
            for record in records:
                if record.timestamp_ms >= wanted:
                    answer.offset, answer.timestamp_ms = record.offset, record.timestamp_ms
                    break
        return answer

    def append(self, request: log_pb2.AppendRequest) -> log_pb2.AppendResponse:
        answer = log_pb2.AppendResponse(correlation=request.correlation)
        with self.lock:
            partition = self.partitions.get((request.topic, request.partition))
            if partition is None:
                return refusal(request, "UnknownTopic", f"unknown topic {request.topic}")
            producer = request.producer
            seen = partition.last_five[producer.id]
            for batch in seen:
                if batch.base_sequence == producer.base_sequence and len(batch.records) == len(request.records.records):
                    answer.base_offset, answer.end_offset = batch.base_offset, batch.end_offset
                    answer.duplicate = True
                    return answer
            expected = (seen[-1].base_sequence + len(seen[-1].records)) % 2**31 if seen else 0
            if producer.base_sequence != expected:
                return refusal(request, "OutOfOrderSequence", f"expected {expected}, got {producer.base_sequence}")
            batch = StoredBatch(
                partition.end_offset,
                producer.id,
                producer.epoch,
                producer.base_sequence,
                list(request.records.records),
            )
            for index, record in enumerate(batch.records):
                record.offset = batch.base_offset + index
            partition.batches.append(batch)
            seen.append(batch)
            self.changed.notify_all()
            answer.base_offset, answer.end_offset = batch.base_offset, batch.end_offset
            return answer


def refusal(
    request: log_pb2.AppendRequest, reason: str, message: str, *, retryable: bool = False
) -> log_pb2.AppendResponse:
    return log_pb2.AppendResponse(
        correlation=request.correlation,
        error=log_pb2.Error(code=9, reason=reason, message=message, retryable=retryable),
    )


def refuse_call(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    facts: dict[str, str] | None = None,
) -> NoReturn:
    error = log_pb2.Error(code=code.value[0], reason=reason, message=message, facts=facts)
    context.set_trailing_metadata((("walrus-error-bin", error.SerializeToString()),))
    context.abort(code, message)


class Drop(Exception):  # noqa: N818 - what is to be done
    """Ends the stream of appends without an answer."""


OnAppend = Callable[[log_pb2.AppendRequest, Callable[[], log_pb2.AppendResponse]], log_pb2.AppendResponse]


# ruff: noqa: ARG002 - the signatures are gRPC's


class LogPeer(log_pb2_grpc.LogServicer):
    """One node. `on_append(request, store)` may refuse, delay, drop, or store and then drop."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.on_append: OnAppend = lambda _request, store: store()
        self.on_read: Callable[[log_pb2.ReadRequest, int], None] = lambda _request, _answers: None
        self.on_init_producer: Callable[[grpc.ServicerContext], None] = lambda _context: None
        self.on_list_topics: Callable[[grpc.ServicerContext], None] = lambda _context: None
        self.on_list_offsets: Callable[[log_pb2.OffsetQuestion], log_pb2.OffsetAnswer | None] = lambda _question: None
        self.cluster_id = "a-cluster"
        self.former_cluster_ids: list[str] = []
        self.named: list[str] = []  # the addresses of all nodes, as this one knows them; else its own
        self.asked_for_nodes = 0
        self.requests = 0
        self._server: grpc.Server | None = None
        self.port = free_port()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(
            futures.ThreadPoolExecutor(32),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.http2.max_ping_strikes", 0),  # a broker answers as many pings as it gets
            ],
        )
        log_pb2_grpc.add_LogServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(self.address) == self.port
        self._server.start()

    def stop(self) -> None:
        """Breaks every connection, as a killed process does."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(grace=None).wait()

    def CreateTopic(self, request, context):  # noqa: N802 - the name is gRPC's
        created = self.storage.create(request.topic, request.partitions or 1)
        return log_pb2.CreateTopicResponse(topic=self.storage.topics[request.topic], created=created)

    def ListTopics(self, request, context):  # noqa: N802
        self.on_list_topics(context)
        with self.storage.lock:
            return log_pb2.ListTopicsResponse(
                topics=[self.storage.topics[name] for name in sorted(self.storage.topics)]
            )

    def ListNodes(self, request, context):  # noqa: N802
        named = self.named or [self.address]
        nodes = [log_pb2.Node(id=n, grpc_address=address, alive=True) for n, address in enumerate(named, start=1)]
        with self.storage.lock:
            self.asked_for_nodes += 1
            self.storage.changed.notify_all()
        return log_pb2.ListNodesResponse(
            cluster_id=self.cluster_id, nodes=nodes, former_cluster_ids=self.former_cluster_ids
        )

    def InitProducer(self, request, context):  # noqa: N802
        self.on_init_producer(context)
        with self.storage.lock:
            self.storage.producer_ids += 1
            return log_pb2.InitProducerResponse(producer_id=self.storage.producer_ids, producer_epoch=0)

    def AppendStream(self, request_iterator, context):  # noqa: N802
        for request in request_iterator:
            self.requests += 1
            try:
                yield self.on_append(request, lambda request=request: self.storage.append(request))
            except Drop:
                context.abort(grpc.StatusCode.UNAVAILABLE, "dropped")

    def ListSegments(self, request, context):  # noqa: N802
        with self.storage.lock:
            topic = self.storage.topics.get(request.topic)
            if topic is None:
                refuse_call(context, grpc.StatusCode.NOT_FOUND, "UnknownTopic", f"unknown topic {request.topic}")
            here = log_pb2.Node(id=1, grpc_address=self.address, alive=True)
            away = log_pb2.Node(id=2, grpc_address="127.0.0.1:1")
            answer = log_pb2.ListSegmentsResponse(topic=topic)
            for number in range(topic.partitions):
                end = self.storage.partitions[topic.name, number].end_offset
                partition = answer.partitions.add(partition=number, high_watermark=end)
                partition.segments.add(
                    uuid=f"segment-{number}",
                    epoch=1,
                    end_offset=end,
                    state=log_pb2.Segment.STATE_OPEN,
                    leader=here,
                    replicas=[here, away],
                    bytes=1536,
                )
            return answer

    def DescribeTopic(self, request, context):  # noqa: N802
        with self.storage.lock:
            topic = self.storage.topics.get(request.topic)
            if topic is None:
                refuse_call(context, grpc.StatusCode.NOT_FOUND, "UnknownTopic", f"unknown topic {request.topic}")
            return log_pb2.DescribeTopicResponse(topic=topic)

    def ListOffsets(self, request, context):  # noqa: N802
        answer = log_pb2.ListOffsetsResponse()
        with self.storage.lock:
            for question in request.questions:
                answer.answers.append(self.on_list_offsets(question) or self.storage.offset_at(request.topic, question))
        return answer

    def Read(self, request, context):  # noqa: N802
        offset = request.offset
        answers = 0
        context.add_callback(self.storage.wake)  # a reader that is gone waits no more
        while True:
            self.on_read(request, answers)
            with self.storage.lock:
                partition = self.storage.partitions.get((request.topic, request.partition))
                if partition is None:
                    refuse_call(context, grpc.StatusCode.NOT_FOUND, "UnknownTopic", f"unknown topic {request.topic}")
                end = partition.end_offset
                if offset > end:
                    facts = {"requested": str(offset), "start": "0", "end": str(end)}
                    message = f"offset {offset} is out of range [0, {end}]"
                    refuse_call(context, grpc.StatusCode.OUT_OF_RANGE, "OffsetOutOfRange", message, facts)
                if request.HasField("end_offset"):
                    end = min(end, request.end_offset)
                if offset >= end:
                    wanted = not request.HasField("end_offset") or offset < request.end_offset
                    waits = wanted and request.wait_ms and context.is_active()
                    if waits and self.storage.changed.wait(request.wait_ms / 1000):
                        continue
                    return
                records = [r for batch in partition.batches for r in batch.records if offset <= r.offset < end][:3]
            offset = records[-1].offset + 1
            answers += 1
            yield log_pb2.ReadResponse(records=records, next_offset=offset, high_watermark=end)


class TextPeer:
    """A node's client port: the text protocol over topics in memory. Entries stay in `topics` when they are taken."""

    def __init__(self) -> None:
        self.topics: dict[str, list[bytes]] = {}
        self.taken: Counter[str] = Counter()
        self.break_at: set[str] = set()
        peer = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while head := self.request.recv(4, socket.MSG_WAITALL):
                    (length,) = struct.unpack("<I", head)
                    text = self.request.recv(length, socket.MSG_WAITALL).decode()
                    if text in peer.break_at:
                        return
                    answer = peer.answer(text)
                    self.request.sendall(struct.pack("<I", len(answer)) + answer)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Connection)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def answer(self, text: str) -> bytes:
        command, _, rest = text.partition(" ")
        topic, _, payload = rest.partition(" ")
        match command:
            case "REGISTER":
                self.topics.setdefault(topic, [])
                return b"OK"
            case "PUT":
                self.topics.setdefault(topic, []).append(payload.encode())
                return b"OK"
            case "METRICS":
                return json.dumps({"current_leader": 1}).encode()
            case "GET" | "STATE" if topic not in self.topics:
                return f"ERR unknown topic {topic}".encode()
            case "STATE":
                return json.dumps({"current_segment": 1, "leader_node": 1}).encode()
            case "GET":
                if self.taken[topic] == len(self.topics[topic]):
                    return b"EMPTY"
                self.taken[topic] += 1
                return b"OK " + self.topics[topic][self.taken[topic] - 1]
        return b"ERR unknown command"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def make_peer(storage: Storage) -> Iterator[Callable[[], LogPeer]]:
    """Starts nodes that serve one storage."""
    peers: list[LogPeer] = []

    def make() -> LogPeer:
        peers.append(LogPeer(storage))
        return peers[-1]

    yield make
    for peer in peers:
        peer.stop()


@pytest.fixture
def peer(make_peer: Callable[[], LogPeer]) -> LogPeer:
    return make_peer()


@pytest.fixture
def text_peer() -> Iterator[TextPeer]:
    peer = TextPeer()
    yield peer
    peer.server.shutdown()
    peer.server.server_close()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens, and nobody will: it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def drop() -> type[Drop]:
    return Drop


@pytest.fixture(name="refuse_call")
def _refuse_call() -> Callable[..., NoReturn]:
    return refuse_call


@pytest.fixture
def refuse() -> Callable[..., log_pb2.AppendResponse]:
    return refusal
