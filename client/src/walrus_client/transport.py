"""The only place that calls gRPC: channels to the nodes of one cluster, which of them is in use, and the one mapping
of gRPC's failures to our errors. Any node takes any request, so one that fails is simply left for the next.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from walrus_client import errors
from walrus_client.addresses import Addresses
from walrus_client.process import Origin
from walrus_client.silence import SilenceWatch
from walrus_client.v1 import log_pb2

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Metadata = tuple[tuple[str, str], ...]


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
ADD_PARTITIONS = Method("AddPartitions", log_pb2.AddPartitionsRequest, log_pb2.AddPartitionsResponse)
DESCRIBE_TOPIC = Method("DescribeTopic", log_pb2.DescribeTopicRequest, log_pb2.DescribeTopicResponse)
ALTER_TOPIC = Method("AlterTopic", log_pb2.AlterTopicRequest, log_pb2.DescribeTopicResponse)
DELETE_RECORDS = Method("DeleteRecords", log_pb2.DeleteRecordsRequest, log_pb2.DeleteRecordsResponse)
LIST_OFFSETS = Method("ListOffsets", log_pb2.ListOffsetsRequest, log_pb2.ListOffsetsResponse)
DELETE_TOPIC = Method("DeleteTopic", log_pb2.DeleteTopicRequest, log_pb2.DeleteTopicResponse)
LIST_TOPICS = Method("ListTopics", log_pb2.ListTopicsRequest, log_pb2.ListTopicsResponse)
LIST_GROUPS = Method("ListGroups", log_pb2.ListGroupsRequest, log_pb2.ListGroupsResponse)
DESCRIBE_GROUP = Method("DescribeGroup", log_pb2.DescribeGroupRequest, log_pb2.DescribeGroupResponse)
RESET_GROUP = Method("ResetGroup", log_pb2.ResetGroupRequest, log_pb2.ResetGroupResponse)
DELETE_GROUP = Method("DeleteGroup", log_pb2.DeleteGroupRequest, log_pb2.DeleteGroupResponse)
LIST_NODES = Method("ListNodes", log_pb2.ListNodesRequest, log_pb2.ListNodesResponse)
LIST_SEGMENTS = Method("ListSegments", log_pb2.ListSegmentsRequest, log_pb2.ListSegmentsResponse)
INIT_PRODUCER = Method("InitProducer", log_pb2.InitProducerRequest, log_pb2.InitProducerResponse)
APPEND_STREAM = Method("AppendStream", log_pb2.AppendRequest, log_pb2.AppendResponse)
READ = Method("Read", log_pb2.ReadRequest, log_pb2.ReadResponse)

# So old may the addresses of the nodes be: less than it takes to restart the other nodes of a cluster one by one.
ADDRESSES_AGE_MAX_S = 10.0
_REFRESH_TIMEOUT_S = 1.0
_ASKED_AT_ONCE = 4
_ENDED_S = 1.0  # so long after its status may a call wait for answers that it has

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer", covariant=True)
Started = TypeVar("Started")


class Continued(Protocol):
    """An answer of a read that says where to go on."""

    @property
    def next_offset(self) -> int: ...


Page = TypeVar("Page", bound=Continued)


class Call(Protocol[Answer]):
    """A stream of answers that may be given up from any thread."""

    def __iter__(self) -> Iterator[Answer]: ...
    def cancel(self) -> Any: ...
    def add_callback(self, callback: Callable[[], None]) -> bool: ...


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


class _NodesCall(Protocol):
    """A question for the addresses of all nodes that is under way; gRPC has no name for it."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def result(self) -> log_pb2.ListNodesResponse: ...
    def cancel(self) -> bool: ...
    def add_done_callback(self, told: Callable[[Any], None]) -> None: ...


class Transport:
    """Channels to the nodes of one cluster. Safe to use from many threads."""

    def __init__(self, addresses: Iterable[str], *, watchful: bool = True) -> None:
        """*watchful*: a node that is silent is noticed within seconds, also while its answer may take long."""
        self._options = _CHANNEL_OPTIONS + (_WATCHFUL if watchful else [])
        self.origin = Origin()
        self._lock = threading.Lock()
        self._addresses = Addresses(addresses)
        self._refresh_at = 0.0  # on the monotonic clock
        self._left: str | None = None  # the node that was left since the addresses were refreshed
        self._channels: dict[str, grpc.Channel] = {}
        self._silence = SilenceWatch()
        self._closed = False

    def address(self) -> str:
        """The node in use."""
        self.origin.check()
        with self._lock:
            return self._addresses.in_use

    def refresh_when_old(self) -> None:
        """Asks for the addresses of all nodes, if that is some time ago or a node was left since.

        So the cluster is still found after each of its nodes has moved, one by one. Mostly the node in use is asked.
        Where one was left, some of the others are asked at once, and the first that answers is used: behind the
        addresses of nodes that moved there may be nobody, and each of those takes as long as a call may. Where none
        of ours answers, all that are left are asked. A node of another cluster, whose address was ours once, is left.
        Raises OtherCluster where nobody but such nodes answers, besides Closed and Forked.
        """
        self.origin.check()
        with self._lock:
            now = time.monotonic()
            if now < self._refresh_at:
                return
            self._refresh_at = now + ADDRESSES_AGE_MAX_S
            left, self._left = self._left, None
            in_use = self._addresses.in_use
            asked = (in_use,) if left is None else self._addresses.besides(left)[:_ASKED_AT_ONCE]
            others = tuple(address for address in self._addresses.besides(in_use) if address not in asked)
        found, strangers = self._find_ours(asked, in_use)
        if not found:
            found, more = self._find_ours(others, in_use)
            strangers |= more
        if found:
            return
        self.leave(in_use)
        if strangers:
            address, cluster_id = next(iter(strangers.items()))
            raise errors.OtherCluster(
                f"{address} is a node of another cluster by now, {cluster_id}; of {self._addresses.cluster_id}, with "
                "which this client began, no node answers at an address that it knows. If the cluster was made anew, "
                "so must the client be: topics and offsets are other ones"
            )

    def _find_ours(self, asked: Sequence[str], in_use: str) -> tuple[bool, dict[str, str]]:
        """Takes in what the first of our cluster says, if one does; the others that answered sooner, with their ids."""
        strangers = dict[str, str]()
        with closing(self._answers(asked)) as answers:
            for address, answer in answers:
                with self._lock:
                    if self._addresses.are_of(answer.cluster_id, answer.former_cluster_ids):
                        if self._addresses.in_use == in_use:  # no other thread went elsewhere meanwhile
                            self._addresses.prefer(address)
                        self._addresses.replace(node.grpc_address for node in sorted(answer.nodes, key=_dead_last))
                        return True, strangers
                strangers[address] = answer.cluster_id
        return False, strangers

    def _answers(self, addresses: Sequence[str]) -> Generator[tuple[str, log_pb2.ListNodesResponse], None, None]:
        """What nodes that are asked at once say of the addresses of all, in the order in which they answer."""
        ended: SimpleQueue[tuple[str, _NodesCall]] = SimpleQueue()

        def ask(channel: grpc.Channel) -> _NodesCall:
            unary: grpc.UnaryUnaryMultiCallable[log_pb2.ListNodesRequest, log_pb2.ListNodesResponse] = (
                channel.unary_unary(
                    LIST_NODES.path,
                    request_serializer=LIST_NODES.request.SerializeToString,
                    response_deserializer=LIST_NODES.response.FromString,
                )
            )
            return unary.future(log_pb2.ListNodesRequest(), timeout=_REFRESH_TIMEOUT_S)

        calls = [(address, self._start(address, ask)) for address in addresses]

        def tell(one: tuple[str, _NodesCall]) -> Callable[[Any], None]:
            return lambda _: ended.put(one)

        for one in calls:
            one[1].add_done_callback(tell(one))
        try:
            for _ in calls:
                address, call = ended.get()
                if call.code() is grpc.StatusCode.OK:
                    yield address, call.result()
                else:
                    _log.debug("%s does not tell the addresses of all nodes: %s", address, call.details())
        finally:
            for _, call in calls:
                call.cancel()

    def leave(self, address: str) -> None:
        """Goes on to the next node, unless another thread already left *address*."""
        with self._lock:
            self._addresses.leave(address)
            self._left = address
            self._refresh_at = 0.0

    def prefer(self, address: str) -> None:
        """Goes to *address* next; it is one of the nodes from now on."""
        with self._lock:
            self._addresses.prefer(address)

    def node_count(self) -> int:
        self.origin.check()
        with self._lock:
            return len(self._addresses)

    def call(
        self, method: Method[Request, Response], request: Request, *, timeout_s: float, metadata: Metadata = ()
    ) -> Response:
        """Asks the node in use once; raises one of `walrus_client.errors`, and leaves a node that cannot be reached."""
        return self._call_at(self.address(), method, request, timeout_s=timeout_s, metadata=metadata)

    def _call_at(
        self,
        address: str,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_s: float,
        metadata: Metadata = (),
    ) -> Response:
        def ask(channel: grpc.Channel) -> Response:
            unary: grpc.UnaryUnaryMultiCallable[Request, Response] = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            return unary(request, timeout=timeout_s, metadata=metadata)

        try:
            return self._start(address, ask)
        except grpc.RpcError as failure:
            raise self.failed(failure, address) from failure

    def call_until(
        self, method: Method[Request, Response], request: Request, *, timeout_s: float, deadline: float
    ) -> Response:
        """Asks one node after another while the errors are retryable and *deadline* is not reached.

        A *deadline* that is over leaves one try, which has the whole *timeout_s*: who wants no second try still waits
        for an answer. The first failure is logged at once, for who waits. The error that is raised has the reason that
        a node gave last: that the last try of all got no answer in the little time that was left tells nobody anything.
        """
        pause = Pause()
        reason: errors.WalrusError | None = None
        has_one_try = deadline <= time.monotonic()
        while True:
            try:
                self.refresh_when_old()
                remaining_s = timeout_s if has_one_try else max(deadline - time.monotonic(), 0.001)
                return self.call(method, request, timeout_s=min(timeout_s, remaining_s))
            except (errors.RetryableError, errors.OutcomeUnknown) as error:  # all that comes here may be done twice
                _log.log(logging.WARNING if reason is None else logging.DEBUG, "%s; trying again", error)
                reason = errors.more_telling(reason, error)
                if not pause.sleep_before(deadline):
                    raise reason from None

    def read(self, request: log_pb2.ReadRequest, parse: Callable[[bytes], Page], *, silence_s: float) -> Iterator[Page]:
        """The answers to one Read, until its end or the first failure. Closing the iterator gives the call up.

        A node that gives no answer within *silence_s* after it was asked for one is left, with its channel. So is one
        whose call has ended and does not say so: in one of some hundred streams that begin while their node closes the
        connection, gRPC 1.85 has the status and never ends the wait for the first answer, neither at a deadline nor
        when the call is cancelled, but only with the channel.
        """
        address = self.address()

        def start(channel: grpc.Channel) -> Call[Page]:
            stream: grpc.UnaryStreamMultiCallable[log_pb2.ReadRequest, Page] = channel.unary_stream(
                READ.path, request_serializer=READ.request.SerializeToString, response_deserializer=parse
            )
            return stream(request)

        call = self._start(address, start)
        call.add_callback(partial(self._silence.hasten, call, within_s=_ENDED_S))
        pages = iter(call)
        try:
            while True:
                self._silence.expect(call, within_s=silence_s, give_up=partial(self._drop_channel, address))
                try:
                    page = next(pages, None)
                finally:
                    in_time = self._silence.heard(call)
                if page is None:
                    return
                yield page
                self.origin.check()
        except grpc.RpcError as failure:
            if in_time or failure.code() is not grpc.StatusCode.CANCELLED:
                raise self.failed(failure, address) from failure
            self.leave(address)
            raise errors.NoAnswer(f"{address} did not answer a read within {silence_s:g} s") from failure
        finally:
            if self.origin.is_here():
                call.cancel()

    def append_stream(self, address: str, requests: Iterator[bytes]) -> Call[log_pb2.AppendResponse]:
        """Opens a stream of appends to *address*. The requests are encoded already, so that one that is sent again is
        not encoded again. Failures come as grpc.RpcError; `failed` maps them.
        """

        def start(channel: grpc.Channel) -> Call[log_pb2.AppendResponse]:
            stream: grpc.StreamStreamMultiCallable[bytes, log_pb2.AppendResponse] = channel.stream_stream(
                APPEND_STREAM.path,
                request_serializer=None,
                response_deserializer=APPEND_STREAM.response.FromString,
            )
            return stream(requests)

        return self._start(address, start)

    def failed(self, failure: grpc.RpcError, address: str) -> errors.WalrusError:
        """The error that stands for a failed call to *address*, a node that is left if it could not serve."""
        error = from_status(failure, address)
        with self._lock:
            if self._closed:
                return errors.Closed("this client was closed")
            if isinstance(error, errors.WrongPort) and not self._addresses.is_given(address):
                error = errors.Unavailable(str(error))  # a node was there, and moved on
        if isinstance(error, errors.RetryableError | errors.OutcomeUnknown):
            self.leave(address)
        return error

    def close(self) -> None:
        self.origin.check()
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    def _drop_channel(self, address: str) -> None:
        """Ends all calls to a node; the next one connects anew."""
        with self._lock:
            channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def _start(self, address: str, start: Callable[[grpc.Channel], Started]) -> Started:
        """What *start* makes of the channel to a node; of another one, if the first was just dropped."""
        while True:
            channel = self._channel(address)
            try:
                return start(channel)
            except ValueError:  # gRPC's answer to a call on a channel that is closed
                with self._lock:
                    if self._channels.get(address) is channel:
                        raise

    def _channel(self, address: str) -> grpc.Channel:
        self.origin.check()
        with self._lock:
            if self._closed:
                raise errors.Closed("this client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = grpc.insecure_channel(address, options=self._options)
            return channel


def _dead_last(node: log_pb2.Node) -> bool:
    return not node.alive


def from_status(failure: grpc.RpcError, address: str) -> errors.WalrusError:
    """The error of a failed call: by the broker's reason where it gave one, else by gRPC's status code."""
    message = failure.details() or ""
    trailers: Iterable[tuple[str, bytes]] = failure.trailing_metadata() or ()  # type: ignore[assignment]  # wrong stub
    for key, value in trailers:
        if key == _ERROR_TRAILER:
            return errors.from_message(log_pb2.Error.FromString(value))
    code = failure.code()
    seen = _other_port(code, message)
    if seen is not None:
        return errors.WrongPort(
            f"{address} does not serve what was asked for: {seen}. Topics and records are on a node's --grpc-port"
            " (9090 by default), the cluster's administration on its --admin-port (9091)"
        )
    kind = _KINDS_BY_CODE.get(code, errors.WalrusError)
    return kind(f"{address}: {message} ({code.name.lower()})")


def _other_port(code: grpc.StatusCode, message: str) -> str | None:
    """Return what answers instead of our service; None if nothing says that something else does."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return "it speaks gRPC, but has no such service"
    if code is grpc.StatusCode.UNAVAILABLE and "http1.x server" in message:
        return "it answers in HTTP/1"
    if code is grpc.StatusCode.UNAVAILABLE and "Failed parsing HTTP/2" in message:
        return "it does not answer in gRPC"  # as a text port does not
    return None


_ERROR_TRAILER = "walrus-error-bin"  # a walrus.v1.Error

_KINDS_BY_CODE: dict[grpc.StatusCode, type[errors.WalrusError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.NoAnswer,
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
    # So does a pod, with another address behind its name; gRPC asks for it at most twice a minute unless it is told.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
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
