"""The only place that calls gRPC: channels to the nodes of one cluster, which of them is in use, and the one mapping
of gRPC's failures to our errors. Any node takes any request, so one that fails is simply left for the next.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from walrus_client import errors
from walrus_client.v1 import log_pb2

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One method of a service, with the types that go in and come out."""

    name: str
    request: type[Request]
    response: type[Response]
    service: str = "walrus.v1.Log"

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


CREATE_TOPIC = Method("CreateTopic", log_pb2.CreateTopicRequest, log_pb2.CreateTopicResponse)
LIST_TOPICS = Method("ListTopics", log_pb2.ListTopicsRequest, log_pb2.ListTopicsResponse)
LIST_SEGMENTS = Method("ListSegments", log_pb2.ListSegmentsRequest, log_pb2.ListSegmentsResponse)
INIT_PRODUCER = Method("InitProducer", log_pb2.InitProducerRequest, log_pb2.InitProducerResponse)
APPEND_STREAM = Method("AppendStream", log_pb2.AppendRequest, log_pb2.AppendResponse)
READ = Method("Read", log_pb2.ReadRequest, log_pb2.ReadResponse)


Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Answer]):
    """A stream of answers that may be given up from any thread."""

    def __iter__(self) -> Iterator[Answer]: ...
    def cancel(self) -> Any: ...


def parse_addresses(text: str) -> tuple[str, ...]:
    """`host:port[,host:port...]` as a tuple; raises ValueError that names the wrong part."""
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses:
        raise ValueError("no address given; expected host:port[,host:port...]")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{address!r} is not host:port")
    return addresses


class Transport:
    """Channels to the nodes of one cluster. Safe to use from many threads."""

    def __init__(self, addresses: Iterable[str], *, watchful: bool = True) -> None:
        """*watchful*: a node that is silent is noticed within seconds, also while its answer may take long."""
        self._options = _CHANNEL_OPTIONS + (_WATCHFUL if watchful else [])
        self._lock = threading.Lock()
        self._addresses = list(addresses)
        self._position = 0  # of the node in use, in _addresses
        self._channels: dict[str, grpc.Channel] = {}
        self._closed = False
        assert self._addresses, "parse_addresses never answers an empty tuple"

    def address(self) -> str:
        """The node in use."""
        with self._lock:
            return self._addresses[self._position]

    def learn(self, addresses: Iterable[str]) -> None:
        """Adds nodes that metadata named to those that may be used, behind the ones that were given."""
        with self._lock:
            self._addresses.extend(dict.fromkeys(a for a in addresses if a and a not in self._addresses))

    def leave(self, address: str) -> None:
        """Goes on to the next node, unless another thread already left *address*."""
        with self._lock:
            if self._addresses[self._position] == address:
                self._position = (self._position + 1) % len(self._addresses)

    def node_count(self) -> int:
        with self._lock:
            return len(self._addresses)

    def call(self, method: Method[Request, Response], request: Request, *, timeout_s: float) -> Response:
        """Asks the node in use once; raises one of `walrus_client.errors`, and leaves a node that cannot be reached."""
        address = self.address()
        unary = self._channel(address).unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            response: Response = unary(request, timeout=timeout_s)
            return response
        except grpc.RpcError as failure:
            raise self.failed(failure, address) from failure

    def call_until(
        self, method: Method[Request, Response], request: Request, *, timeout_s: float, deadline: float
    ) -> Response:
        """The same, again and again on all nodes while the errors are retryable and *deadline* is not reached."""
        pause = Pause()
        while True:
            try:
                remaining_s = max(deadline - time.monotonic(), 0.001)
                return self.call(method, request, timeout_s=min(timeout_s, remaining_s))
            except (errors.RetryableError, errors.OutcomeUnknown):  # all that comes here may be done twice
                if not pause.sleep_before(deadline):
                    raise

    def read(self, request: log_pb2.ReadRequest) -> Iterator[log_pb2.ReadResponse]:
        """The answers to one Read, until its end or the first failure. Closing the iterator gives the call up."""
        address = self.address()
        stream = self._channel(address).unary_stream(
            READ.path,
            request_serializer=READ.request.SerializeToString,
            response_deserializer=READ.response.FromString,
        )
        call: Call[log_pb2.ReadResponse] = stream(request)
        try:
            yield from call
        except grpc.RpcError as failure:
            raise self.failed(failure, address) from failure
        finally:
            call.cancel()

    def append_stream(self, address: str, requests: Iterator[bytes]) -> Call[log_pb2.AppendResponse]:
        """Opens a stream of appends to *address*. The requests are encoded already, so that one that is sent again is
        not encoded again. Failures come as grpc.RpcError; `failed` maps them.
        """
        stream: grpc.StreamStreamMultiCallable[bytes, log_pb2.AppendResponse] = self._channel(address).stream_stream(
            APPEND_STREAM.path,
            request_serializer=None,
            response_deserializer=APPEND_STREAM.response.FromString,
        )
        call: Call[log_pb2.AppendResponse] = stream(requests)
        return call

    def failed(self, failure: grpc.RpcError, address: str) -> errors.WalrusError:
        """The error that stands for a failed call to *address*, a node that is left if it could not serve."""
        error = from_status(failure, address)
        if isinstance(error, errors.RetryableError | errors.OutcomeUnknown):
            self.leave(address)
        return error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise errors.Unavailable("this client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = grpc.insecure_channel(address, options=self._options)
            return channel


def _as_encoded(request: bytes) -> bytes:
    return request


def from_status(failure: grpc.RpcError, address: str) -> errors.WalrusError:
    """The error of a failed call: by the broker's reason where it gave one, else by gRPC's status code."""
    message = failure.details() or ""
    trailers: Iterable[tuple[str, bytes]] = failure.trailing_metadata() or ()  # type: ignore[assignment]  # wrong stub
    for key, value in trailers:
        if key == _ERROR_TRAILER:
            return errors.from_message(log_pb2.Error.FromString(value))
    code = failure.code()
    kind = _KINDS_BY_CODE.get(code, errors.WalrusError)
    return kind(f"{address}: {message} ({code.name.lower()})")


_ERROR_TRAILER = "walrus-error-bin"  # a walrus.v1.Error

_KINDS_BY_CODE: dict[grpc.StatusCode, type[errors.WalrusError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Unavailable,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    # Without a reason these are gRPC's own: a connection that broke in the middle of a stream.
    grpc.StatusCode.UNKNOWN: errors.Unavailable,
    grpc.StatusCode.INTERNAL: errors.Unavailable,
    grpc.StatusCode.ABORTED: errors.Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.Unavailable,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED: errors.InvalidRequest,
    grpc.StatusCode.NOT_FOUND: errors.UnknownTopic,
    grpc.StatusCode.OUT_OF_RANGE: errors.OffsetOutOfRange,
    grpc.StatusCode.DATA_LOSS: errors.CorruptionError,
}


_CHANNEL_OPTIONS = [
    # A batch is cut by our own limits; gRPC's 4 MiB would only break long reads.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC waits up to two minutes before it looks at a node again that was down; a broker restarts within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Connections are shared in a process otherwise, and so is the wait before a node is looked at again.
    ("grpc.use_local_subchannel_pool", 1),
    # Brokers are never behind a forward proxy, but the environment of a notebook or a CI job often names one.
    ("grpc.enable_http_proxy", 0),
]

# Finds a node that hangs, or whose machine is gone, while nothing but its answer is awaited. A ping that is under way
# for another reason has a timeout of its own, a minute unless it is told, and no second one is sent meanwhile.
_WATCHFUL = [
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class Pause:
    """The time between tries: it doubles from 20 ms to 1 s, and is spread so that clients do not come all at once."""

    _FIRST_S = 0.02
    _LONGEST_S = 1.0

    def __init__(self, sleep: Callable[[float], object] = time.sleep) -> None:
        self._sleep = sleep
        self._next_s = self._FIRST_S

    def next_s(self) -> float:
        """How long to wait now, in seconds."""
        pause_s = self._next_s
        self._next_s = min(self._next_s * 2, self._LONGEST_S)
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - to spread clients, not to hide anything

    def sleep_before(self, deadline: float) -> bool:
        """Sleeps until the next try is due; False, without sleeping, if that would pass *deadline*."""
        pause_s = self.next_s()
        if time.monotonic() + pause_s >= deadline:
            return False
        self._sleep(pause_s)
        return True

    def reset(self) -> None:
        """Starts from the shortest again: something went well."""
        self._next_s = self._FIRST_S
