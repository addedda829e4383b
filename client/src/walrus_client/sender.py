"""Delivers what is in an `Outbox`: owns its lock, its threads, its clock and the connection in use.

One connection (`_Lane`, a stream of appends to one node) is open at a time; when it breaks, or its node cannot serve,
the next node is used, and whatever was not answered is sent again. The outbox decides what is sent and what failed.

Threads: the supervisor opens lanes, gets producer ids and watches the times; a receiver takes the answers of one lane;
gRPC's own thread takes the requests. They wait for each other on conditions of one lock and never poll.
"""

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc

from walrus_client import errors
from walrus_client.model import Appended
from walrus_client.outbox import REQUEST_BYTES_MAX, Batch, Identity, Limits, Outbox, Outcome, OutRecord, Target
from walrus_client.transport import ADDRESSES_AGE_MAX_S, INIT_PRODUCER, Call, Pause, Transport
from walrus_client.v1 import log_pb2

_log = logging.getLogger(__name__)

_REFUSALS_MAX = 3  # in a row, before another node is tried: this one may be cut off from the leader


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches, and how long it tries."""

    batch_records_max: int = 10_000
    batch_bytes_max: int = 512 * 1024
    linger_ms: int = 5  # how long a batch waits for more records before it is sent
    in_flight_batches_max: int = 5  # limit for each partition
    buffer_bytes_max: int = 32 * 1024 * 1024  # limit on records not delivered yet; `send` blocks above it
    request_timeout_ms: int = 30_000  # without an answer for so long, the connection is given up
    delivery_timeout_ms: int = 120_000  # from `send` on; then the delivery fails

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight_batches_max <= 5:
            raise ValueError("in_flight_batches_max must be 1 to 5: a broker recognises the last five batches")
        for name in ("batch_records_max", "batch_bytes_max", "buffer_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("request_timeout_ms", "delivery_timeout_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 ms")
        if self.batch_bytes_max > REQUEST_BYTES_MAX:
            raise ValueError(f"batch_bytes_max must be at most {REQUEST_BYTES_MAX}: a node takes no longer request")
        if self.linger_ms < 0:
            raise ValueError("linger_ms must not be negative")


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """What a producer has done so far."""

    delivered_records: int
    delivered_batches: int
    duplicate_batches: int  # delivered ones that an earlier try had stored
    failed_batches: int
    resent_batches: int
    connections: int  # tried, whether they came about or not
    undelivered_bytes: int


# A program that ends, by an error or at its last line, waits for its producers: one that was not closed would lose
# what it sent last, without a word.
EXIT_TIMEOUT_S = 10.0
_open_senders: "weakref.WeakSet[Sender]" = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for sender in list(_open_senders):
        sender.close_at_exit(max(deadline - time.monotonic(), 0.1))


class _Lane:
    """One stream of appends to one node, from its opening until `error` says why it is over."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.call: Call[log_pb2.AppendResponse] | None = None
        self.error: errors.WalrusError | None = None
        self.refusals = 0  # in a row


class Sender:
    """Delivers batches to any topic and partition. Safe to use from many threads."""

    def __init__(self, transport: Transport, options: ProducerOptions) -> None:
        self.origin = transport.origin
        self._transport = transport
        self._options = options
        self._outbox = Outbox(
            Limits(
                batch_records_max=options.batch_records_max,
                batch_bytes_max=options.batch_bytes_max,
                linger_s=options.linger_ms / 1000,
                in_flight_batches_max=options.in_flight_batches_max,
                delivery_timeout_s=options.delivery_timeout_ms / 1000,
            )
        )
        # The lock guards everything below and the outbox.
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)  # for `add`: something was forgotten
        self._done = threading.Condition(self._lock)  # for `flush`: the same
        self._work = threading.Condition(self._lock)  # for the lane: something may be sent, or the lane is over
        self._attention = threading.Condition(self._lock)  # for the supervisor: something changed
        self._lane: _Lane | None = None
        self._closing = False
        self._failure: errors.WalrusError | None = None  # the first one since the last flush
        self._failing = False  # since the last append that went well
        self._pause = Pause()
        self._connections = 0
        self._delivered_records = 0
        self._delivered_batches = 0
        self._duplicate_batches = 0
        self._failed_batches = 0
        self._supervisor = threading.Thread(target=self._supervise, name="walrus-sender", daemon=True)
        self._supervisor.start()
        _open_senders.add(self)

    def add(self, target: Target, record: OutRecord) -> tuple[Batch, bool]:
        """Hands one record over; True if it is the first of its batch. Blocks while the buffer is full."""
        self.origin.check()
        size = record.size()
        with self._lock:
            self._wait_for_room(size)
            batch, changed = self._outbox.add(target, record, size=size, now=time.monotonic())
            if changed:
                self._work.notify()
                self._attention.notify()
            return batch, batch.record_count == 1

    def add_batch(self, target: Target, records: Sequence[OutRecord]) -> Batch:
        """Hands over records that are to be one batch, stored all or not at all. Blocks while the buffer is full."""
        self.origin.check()
        with self._lock:
            self._wait_for_room(sum(record.size() for record in records))
            batch = self._outbox.add_batch(target, records, now=time.monotonic())
            self._work.notify()
            self._attention.notify()
            return batch

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until all that was added before is decided; raises the first failure since the last flush.

        Raises TimeoutError after *timeout_s*; what is not delivered by then is still tried.
        """
        self.origin.check()
        with self._lock:
            mark = self._outbox.close_all()
            self._work.notify()
            self._attention.notify()
            if not self._done.wait_for(lambda: self._outbox.is_decided(mark), timeout_s):
                raise TimeoutError(f"{self._outbox.bytes} bytes are not delivered yet after {timeout_s} s")
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> errors.WalrusError | None:
        """Delivers what was added, then ends the connection and the threads; answers what `flush` would raise."""
        self.origin.check()
        with self._lock:
            self._closing = True
            self._outbox.close_all()
            for condition in (self._room, self._work, self._attention):
                condition.notify_all()
        self._supervisor.join()
        with self._lock:
            failure, self._failure = self._failure, None
        return failure

    def close_at_exit(self, timeout_s: float) -> None:
        """Delivers what it can within *timeout_s*, for a program that ends without `close`; logs what it cannot."""
        if not self.origin.is_here():
            return  # its parent delivers, and this child may end
        with self._lock:
            if self._closing or (self._outbox.is_empty() and self._failure is None):
                return
        _log.warning(
            "the program ends, and a producer was not closed: %d bytes are still to be delivered, which may take up to"
            " %g s. Use `with`, or call `flush`",
            self._outbox.bytes,
            timeout_s,
        )
        try:
            self.flush(timeout_s=timeout_s)
        except (errors.WalrusError, TimeoutError) as failure:
            _log.error("records of a producer that was not closed are lost, or may be: %s", failure)

    def stats(self) -> ProducerStats:
        self.origin.check()
        with self._lock:
            return ProducerStats(
                delivered_records=self._delivered_records,
                delivered_batches=self._delivered_batches,
                duplicate_batches=self._duplicate_batches,
                failed_batches=self._failed_batches,
                resent_batches=self._outbox.resent_batches,
                connections=self._connections,
                undelivered_bytes=self._outbox.bytes,
            )

    def _wait_for_room(self, size: int) -> None:
        # A record larger than the whole buffer goes when it is alone: the broker says whether it is too large.
        while self._outbox.bytes > 0 and self._outbox.bytes + size > self._options.buffer_bytes_max:
            if self._closing:
                break
            self._room.wait()
        if self._closing:
            raise errors.Closed("this producer is closed")

    # The supervisor

    def _supervise(self) -> None:
        while self._wait_for_work():
            try:
                self._transport.refresh_when_old()
                self._get_identity_if_needed()
                self._watch_while_needed()
            except errors.Closed as error:
                self._give_up(error)
            except errors.WalrusError as error:
                # Once is news; that it goes on is not.
                _log.log(logging.DEBUG if self._failing else logging.WARNING, "%s; sending again", error)
                self._failing = True
                self._lose_lane(error)
                self._rest()

    def _wait_for_work(self) -> bool:
        """Waits until there is something to deliver, or until the addresses of the nodes are old.

        False when the producer is closed and nothing is left.
        """
        with self._lock:
            until = time.monotonic() + ADDRESSES_AGE_MAX_S
            while self._outbox.is_empty():
                if self._closing:
                    if self._lane is not None:
                        self._lane.error = errors.Closed("the producer is closed")
                        self._work.notify_all()  # its requests end, and the node ends the stream
                    return False
                if self._lane is not None and self._lane.error is not None:
                    self._end_lane(self._lane.error)
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return True
                self._attention.wait(left_s)
            outcomes = self._outbox.expire(time.monotonic())
        self._resolve(outcomes)
        return True

    def _give_up(self, error: errors.Closed) -> None:
        """Fails all that is not delivered, and takes nothing more: the client is closed, and was not to be yet."""
        with self._lock:
            self._closing = True
            self._end_lane(error)
            outcomes = self._outbox.give_up(error)
            self._room.notify_all()
        self._resolve(outcomes)

    def _get_identity_if_needed(self) -> None:
        with self._lock:
            if not self._outbox.needs_identity():
                return
            expiry = self._outbox.next_expiry()
        timeout_s = self._options.request_timeout_ms / 1000
        if expiry is not None:
            timeout_s = max(min(timeout_s, expiry - time.monotonic()), 0.001)
        answer = self._transport.call(INIT_PRODUCER, log_pb2.InitProducerRequest(), timeout_s=timeout_s)
        with self._lock:
            self._outbox.give_identity(Identity(answer.producer_id, answer.producer_epoch))
            self._work.notify()

    def _open_lane(self) -> _Lane:
        lane = _Lane(self._transport.address())
        with self._lock:
            self._lane = lane
            self._connections += 1
        lane.call = self._transport.append_stream(lane.address, self._requests(lane))
        threading.Thread(target=self._receive, args=(lane, lane.call), name="walrus-receiver", daemon=True).start()
        return lane

    def _watch_while_needed(self) -> None:
        with self._lock:
            if self._outbox.is_empty():
                return
        self._watch(self._lane or self._open_lane())

    def _watch(self, lane: _Lane) -> None:
        """Waits while *lane* serves, until a producer id is needed, the addresses are old, or all is delivered.

        Raises the lane's error.
        """
        until = time.monotonic() + ADDRESSES_AGE_MAX_S
        while True:
            with self._lock:
                if lane.error is not None:
                    raise lane.error
                now = time.monotonic()
                if self._outbox.needs_identity() or self._outbox.is_empty() or now >= until:
                    return
                sent_at = self._outbox.oldest_sent_at()
                # What is sent from now on has its time until then, too.
                give_up_at = (now if sent_at is None else sent_at) + self._options.request_timeout_ms / 1000
                if give_up_at <= now:
                    raise errors.NoAnswer(f"{lane.address} did not answer within {self._options.request_timeout_ms} ms")
                outcomes = self._outbox.expire(now)
                if not outcomes:
                    next_look = min(give_up_at, self._outbox.next_expiry() or give_up_at, until)
                    self._attention.wait(max(next_look - now, 0))
            self._resolve(outcomes)

    def _lose_lane(self, error: errors.WalrusError) -> None:
        with self._lock:
            self._end_lane(error)
            self._outbox.connection_lost(error)

    def _end_lane(self, error: errors.WalrusError) -> None:
        lane, self._lane = self._lane, None
        if lane is None:
            return
        lane.error = lane.error or error
        self._work.notify_all()  # its requests end
        if lane.call is not None:
            lane.call.cancel()
        self._transport.leave(lane.address)

    def _rest(self) -> None:
        """Waits before the next try, with the lock free."""
        with self._lock:
            until = time.monotonic() + self._pause.next_s()
            while (left_s := until - time.monotonic()) > 0:
                self._attention.wait(left_s)

    # The lane

    def _requests(self, lane: _Lane) -> Iterator[bytes]:
        """What gRPC sends on *lane*; it takes the next one when the last one is on its way."""
        while (request := self._next_request(lane)) is not None:
            yield request

    def _next_request(self, lane: _Lane) -> bytes | None:
        with self._lock:
            while lane.error is None:
                now = time.monotonic()
                request = self._outbox.next_request(now)
                if request is not None:
                    return request
                due = self._outbox.next_due()
                self._work.wait(None if due is None else max(due - now, 0))
            return None

    def _receive(self, lane: _Lane, call: Call[log_pb2.AppendResponse]) -> None:
        try:
            for response in call:
                self._take_answer(lane, response)
            error: errors.WalrusError = errors.Unavailable(f"{lane.address} ended the stream of appends")
        except grpc.RpcError as failure:
            error = self._transport.failed(failure, lane.address)
        with self._lock:
            lane.error = lane.error or error
            self._work.notify_all()
            self._attention.notify()

    def _take_answer(self, lane: _Lane, response: log_pb2.AppendResponse) -> None:
        with self._lock:
            if lane is not self._lane:
                return  # given up meanwhile; the batch may be in flight on another lane
            pause_s = 0.0
            if not response.HasField("error"):
                lane.refusals = 0
                self._failing = False
                self._pause.reset()
            elif response.error.retryable or response.error.reason == "OutcomeUnknown":
                lane.refusals += 1
                pause_s = self._pause.next_s()
            elif response.error.reason == "OutOfOrderSequence" and self._outbox.is_oldest(response.correlation):
                lane.refusals = _REFUSALS_MAX  # it lacks what others have acknowledged
                pause_s = self._pause.next_s()
            outcomes = self._outbox.answered(response, now=time.monotonic(), pause_s=pause_s)
            if lane.refusals >= _REFUSALS_MAX:
                lane.error = errors.Unavailable(f"{lane.address} cannot serve: {response.error.message}")
            self._work.notify()
            self._attention.notify()
        self._resolve(outcomes)

    def _resolve(self, outcomes: list[Outcome]) -> None:
        """Gives results to the futures, then the room back: `flush` returns when every future is done."""
        if not outcomes:
            return
        for batch, result in outcomes:
            if isinstance(result, Appended):
                batch.delivery.set_result(result)
            else:
                batch.delivery.set_exception(result)
        with self._lock:
            for batch, result in outcomes:
                self._outbox.forget(batch)
                if isinstance(result, Appended):
                    self._delivered_records += batch.record_count
                    self._delivered_batches += 1
                    self._duplicate_batches += result.duplicate
                else:
                    self._failed_batches += 1
                    self._failure = self._failure or result
            self._room.notify_all()
            self._done.notify_all()
            self._attention.notify()
