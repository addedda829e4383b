"""A node that tells another story about some topics: recorded lists of segments, and reads that go with them.

Brokers cannot yet delete topics, add partitions or trim on demand, and lose no acknowledged records; a query has to
live with all of it. This one stands between a query and real brokers: what is not retold comes from them.
"""

import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc
import record_batch
from walrus_client.v1 import log_pb2

SERVICE = "/walrus.v1.Log/"
Change = Callable[[log_pb2.ListSegmentsResponse], None]


class Retold:
    """Answers for the cluster at `bootstrap`, on an address of its own; use it as a context."""

    def __init__(self, bootstrap: str) -> None:
        self._channel = grpc.insecure_channel(bootstrap.split(",")[0], options=[("grpc.enable_http_proxy", 0)])
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._lock = threading.Lock()
        self._acting = threading.Lock()
        self._changes: dict[str, Change | None] = {}
        self._late: dict[str, list[Change]] = {}
        self._compressed: set[str] = set()
        self._before_read: Callable[[], None] | None = None
        self.calls: list[str] = []  # methods, in their order
        self.peers: set[str] = set()  # one for each connection

    def tell(self, topic: str, change: Change) -> None:
        """From now on lists of the topic's segments come as `change` makes them, and reads keep to them."""
        with self._lock:
            self._changes[topic] = change

    def list_late(self, topic: str, change: Change, *, times: int, skip: int = 0) -> None:
        """After `skip` lists of the topic's segments come those of a node that is behind; reads find everything."""
        with self._lock:
            self._late[topic] = [change] * times + [unchanged] * skip

    def forget(self, topic: str) -> None:
        """From now on there is no such topic."""
        with self._lock:
            self._changes[topic] = None

    def compress(self, topic: str) -> None:
        """From now on batches of the topic come as if its producers had compressed them, each codec in its turn."""
        with self._lock:
            self._compressed.add(topic)

    def before_next_read(self, act: Callable[[], None]) -> None:
        """Acts once, when a task asks for records."""
        with self._lock:
            self._before_read = act

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.stop(grace=None).wait()
        self._channel.close()

    def list_segments(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._note("ListSegments", context)
        topic = log_pb2.ListSegmentsRequest.FromString(request).topic
        answer = self._listed(topic, context)
        with self._lock:
            late = self._late.get(topic)
            if late:
                late.pop()(answer)
        return answer.SerializeToString()

    def read(self, encoded: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._note("Read", context)
        request = log_pb2.ReadRequest.FromString(encoded)
        if request.end_offset != request.offset:
            with self._acting:  # a read that comes meanwhile comes after it
                with self._lock:
                    act, self._before_read = self._before_read, None
                if act is not None:
                    act()
        with self._lock:
            retold, compressed = request.topic in self._changes, request.topic in self._compressed
        if retold:
            partition = self._listed(request.topic, context).partitions[request.partition]
            start, end = partition.log_start, partition.high_watermark
            if not start <= request.offset <= end:
                facts = {"requested": str(request.offset), "start": str(start), "end": str(end)}
                _refuse(context, grpc.StatusCode.OUT_OF_RANGE, "OffsetOutOfRange", facts)
            if request.segment and request.segment not in {segment.uuid for segment in partition.segments}:
                _refuse(context, grpc.StatusCode.NOT_FOUND, "UnknownSegment", {"segment": request.segment})
            request.end_offset = min(request.end_offset, end) if request.HasField("end_offset") else end
            request.ClearField("segment")  # the brokers may not know it
        for answer in self._forward_stream("Read", request.SerializeToString()):
            kept = _without_batches_from(request.end_offset, answer) if retold else answer
            yield _compressed(kept) if compressed else kept

    def nodes(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._note("ListNodes", context)
        answer = log_pb2.ListNodesResponse.FromString(self._forward("ListNodes", request))
        del answer.nodes[:]  # all is asked here
        return answer.SerializeToString()

    def topics(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._note("ListTopics", context)
        return self._forward("ListTopics", request)

    def _listed(self, topic: str, context: grpc.ServicerContext) -> log_pb2.ListSegmentsResponse:
        with self._lock:
            told, change = topic in self._changes, self._changes.get(topic)
        if told and change is None:
            _refuse(context, grpc.StatusCode.NOT_FOUND, "UnknownTopic", {"topic": topic})
        try:
            found = self._forward("ListSegments", log_pb2.ListSegmentsRequest(topic=topic).SerializeToString())
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())
        answer = log_pb2.ListSegmentsResponse.FromString(found)
        if change is not None:
            change(answer)
        for partition in answer.partitions:
            for segment in partition.segments:
                for node in (segment.leader, *segment.replicas):
                    node.grpc_address = self.address
        return answer

    def _note(self, method: str, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.calls.append(method)
            self.peers.add(context.peer())

    def _forward(self, method: str, request: bytes) -> bytes:
        return self._channel.unary_unary(SERVICE + method)(request, timeout=30)

    def _forward_stream(self, method: str, request: bytes) -> Iterator[bytes]:
        yield from self._channel.unary_stream(SERVICE + method)(request, timeout=60)


def _without_batches_from(end: int, encoded: bytes) -> bytes:
    """An answer as of brokers that have nothing from `end` on: they send batches whole, also such behind the range."""
    answer = log_pb2.ReadResponse.FromString(encoded)
    answer.batches = b"".join(batch for base_offset, batch in _batches(answer.batches) if base_offset < end)
    return answer.SerializeToString()


def _compressed(encoded: bytes) -> bytes:
    answer = log_pb2.ReadResponse.FromString(encoded)
    plain = [list(record_batch.decode(batch, 0, 1 << 62)) for _, batch in _batches(answer.batches)]
    codecs = itertools.cycle(record_batch.CODECS)
    answer.batches = b"".join(
        record_batch.encode(records, codec) for records, codec in zip(plain, codecs, strict=False)
    )
    return answer.SerializeToString()


def _batches(batches: bytes) -> Iterator[tuple[int, bytes]]:
    """Batches that lie back to back, and their base offsets."""
    while batches:
        base_offset, length = struct.unpack_from(">qi", batches)
        yield base_offset, batches[: 12 + length]
        batches = batches[12 + length :]


def trimmed(log_start: int, partition: int = 0) -> Change:
    """Retention took everything below `log_start`."""

    def change(answer: log_pb2.ListSegmentsResponse) -> None:
        found = answer.partitions[partition]
        found.log_start = log_start
        kept = [segment for segment in found.segments if segment.end_offset > log_start]
        kept[0].base_offset = max(kept[0].base_offset, log_start)
        del found.segments[:]
        found.segments.extend(kept)

    return change


def cut_off(end: int, partition: int = 0) -> Change:
    """Everything from `end` on was lost."""

    def change(answer: log_pb2.ListSegmentsResponse) -> None:
        found = answer.partitions[partition]
        found.high_watermark = end
        kept = [segment for segment in found.segments if segment.base_offset < end]
        kept[-1].end_offset = end
        del found.segments[:]
        found.segments.extend(kept)

    return change


def overwritten(start: int, partition: int = 0) -> Change:
    """Everything from `start` on was lost, and as much was appended since, to another segment."""

    def change(answer: log_pb2.ListSegmentsResponse) -> None:
        found = answer.partitions[partition]
        end = found.high_watermark
        cut_off(start, partition)(answer)
        another = log_pb2.Segment()
        another.CopyFrom(found.segments[-1])
        another.uuid = "33333333-3333-4333-8333-333333333333"
        another.epoch += 1
        del another.epochs[:]
        another.epochs.add(epoch=another.epoch, first_offset=start)
        another.base_offset, another.end_offset = start, end
        found.segments.append(another)
        found.high_watermark = end

    return change


def unchanged(answer: log_pb2.ListSegmentsResponse) -> None:
    """Retells nothing: the answer stays as it is."""


def made_again(answer: log_pb2.ListSegmentsResponse) -> None:
    """The topic was deleted and made again: other uuids, and the records that it really has."""
    answer.topic.uuid = "11111111-1111-4111-8111-111111111111"
    for partition in answer.partitions:
        for number, segment in enumerate(partition.segments):
            segment.uuid = f"22222222-2222-4222-8222-{partition.partition:06}{number:06}"


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, facts: dict[str, str]) -> None:
    message = f"{reason} as it is retold"
    error = log_pb2.Error(code=code.value[0], reason=reason, message=message, retryable=False, facts=facts)
    context.set_trailing_metadata((("walrus-error-bin", error.SerializeToString()),))
    context.abort(code, message)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, retold: Retold) -> None:
        self._methods = {
            SERVICE + "ListSegments": grpc.unary_unary_rpc_method_handler(retold.list_segments),
            SERVICE + "ListNodes": grpc.unary_unary_rpc_method_handler(retold.nodes),
            SERVICE + "ListTopics": grpc.unary_unary_rpc_method_handler(retold.topics),
            SERVICE + "Read": grpc.unary_stream_rpc_method_handler(retold.read),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method)
