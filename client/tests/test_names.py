"""A node that comes back with another address behind its name, as a pod does."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import grpc
import pytest
from walrus_client.transport import LIST_NODES, Transport
from walrus_client.v1 import log_pb2, log_pb2_grpc

_HEADER_BYTES = 12
_QUESTION_TAIL_BYTES = 5  # the end of the name, type and class
_TYPE_A = b"\x00\x01"


@pytest.fixture
def names():
    """A server of names (RFC 1035) that tells one address for every name: where it is, and how it is told another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        told = {"address": "127.0.0.1"}

        def serve():
            while (received := listening.recvfrom(512))[0] != b"end":
                asked, asker = received
                question_end = asked.index(b"\x00", _HEADER_BYTES) + _QUESTION_TAIL_BYTES
                question = asked[_HEADER_BYTES:question_end]
                answers = question[-4:-2] == _TYPE_A
                header = asked[:2] + b"\x81\x80" + b"\x00\x01" + (b"\x00\x01" if answers else b"\x00\x00") + bytes(4)
                answer = (
                    b"\xc0\x0c" + _TYPE_A + b"\x00\x01" + bytes(4) + b"\x00\x04" + socket.inet_aton(told["address"])
                )
                listening.sendto(header + question + (answer if answers else b""), asker)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", told
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
            ending.sendto(b"end", listening.getsockname())
        serving.join()


@pytest.fixture
def port():
    """A port of two addresses, which nobody takes but servers that share it, as gRPC's do."""
    with socket.socket() as first, socket.socket() as second:
        for holder in (first, second):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.2", first.getsockname()[1]))
        yield first.getsockname()[1]


class _Nodes(log_pb2_grpc.LogServicer):
    """Knows one node, by its name."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ListNodes(self, _request, _context):  # noqa: N802 - the name of the call
        return log_pb2.ListNodesResponse(nodes=[log_pb2.Node(grpc_address=self._address, alive=True)])


@contextmanager
def node(listens_at: str, name: str) -> Iterator[None]:
    server = grpc.server(ThreadPoolExecutor(2))
    log_pb2_grpc.add_LogServicer_to_server(_Nodes(name), server)
    server.add_insecure_port(listens_at)
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()


def test_a_node_with_another_address_behind_its_name_is_found_within_seconds(names, port):
    """gRPC asks for the addresses of a name at most every 30 s unless it is told; a pod is back within two."""
    server, told = names
    name = f"dns://{server}/broker.test:{port}"
    with closing(Transport([name])) as transport:

        def ask() -> log_pb2.ListNodesResponse:
            deadline = time.monotonic() + 15
            return transport.call_until(LIST_NODES, log_pb2.ListNodesRequest(), timeout_s=5, deadline=deadline)

        with node(f"127.0.0.1:{port}", name):
            assert ask().nodes
        told["address"] = "127.0.0.2"
        with node(f"127.0.0.2:{port}", name):
            assert ask().nodes
