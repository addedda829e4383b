"""A node with a topic of as many records as one likes, made while they are read: one page, again and again."""

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc
import record_batch
from record_batch import PlainRecord
from walrus_client.v1 import log_pb2

TOPIC = "endless"
UUID = "44444444-4444-4444-8444-444444444444"
BATCH_RECORDS = 2_000
PAGE_BATCHES = 25


class Endless:
    """Serves `records` records of one sealed segment; use it as a context."""

    def __init__(self, records: int) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._records = records
        rows = [PlainRecord(n, 0, b"key", b"0123456789", (("h", b"1"),)) for n in range(BATCH_RECORDS)]
        self._batch = record_batch.encode(rows)[8:]  # behind the base offset, which the checksum does not cover

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.stop(grace=None).wait()

    def nodes(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        return log_pb2.ListNodesResponse(cluster_id=UUID).SerializeToString()

    def segments(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        node = log_pb2.Node(id=0, grpc_address=self.address, alive=True)
        sealed = log_pb2.Segment.State.STATE_SEALED
        segment = log_pb2.Segment(uuid=UUID, end_offset=self._records, state=sealed, replicas=[node], bytes=1 << 20)
        partition = log_pb2.Partition(high_watermark=self._records, segments=[segment])
        topic = log_pb2.Topic(name=TOPIC, uuid=UUID, partitions=1)
        return log_pb2.ListSegmentsResponse(topic=topic, partitions=[partition]).SerializeToString()

    def read(self, encoded: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        request = log_pb2.ReadRequest.FromString(encoded)
        for start in range(request.offset, request.end_offset, BATCH_RECORDS * PAGE_BATCHES):
            bases = range(start, start + BATCH_RECORDS * PAGE_BATCHES, BATCH_RECORDS)
            batches = b"".join(struct.pack(">q", base) + self._batch for base in bases)
            end = min(bases.stop, request.end_offset)
            answer = log_pb2.ReadResponse(batches=batches, next_offset=end, high_watermark=self._records)
            yield answer.SerializeToString()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, node: Endless) -> None:
        self._methods = {
            "ListNodes": grpc.unary_unary_rpc_method_handler(node.nodes),
            "ListSegments": grpc.unary_unary_rpc_method_handler(node.segments),
            "Read": grpc.unary_stream_rpc_method_handler(node.read),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method.rpartition("/")[2])
