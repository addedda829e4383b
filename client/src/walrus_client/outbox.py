"""What a producer still has to deliver, and what may be sent next: batching, sequences, and the rules of resending.

Pure: no thread, no socket, no clock; `sender.py` holds the lock, the connection and the time. Per partition:

- Batches are sent in order, with sequences that count up, and at most `in_flight_batches_max` of them are undecided:
  the broker remembers the last five of each producer, so whatever comes again under its sequences is stored once.
- After a failure nothing new is sent until every batch in flight is answered or its connection is gone; then all that
  are undecided are sent again, oldest first. Only the oldest can fail for good: what is said of a later one is heard
  again when it is the oldest.
- A batch that failed for good leaves a gap in the sequences. Those behind it are sent under a new producer id, if it is
  certain that they are not stored under the old one; else their outcome is unknown too.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from walrus_client import errors
from walrus_client.model import Appended
from walrus_client.process import ParentsFuture
from walrus_client.v1 import log_pb2

SEQUENCES = 2**31  # they wrap here, as in Kafka
# A node takes no longer request. It would break the connection, and with it everything that is in flight.
REQUEST_BYTES_MAX = 16 * 1024 * 1024
GAPS_MAX = 8  # so often a producer whose acknowledged records a node lacks is sent elsewhere, before that is believed


class Target(NamedTuple):
    """Where a batch goes."""

    topic: str
    partition: int


class Identity(NamedTuple):
    """A producer id that the cluster handed out, and its epoch."""

    id: int
    epoch: int


class OutRecord(NamedTuple):
    """A record on its way; `timestamp_ms` 0 is the time at which the broker takes it."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()

    def size(self) -> int:
        """The bytes that it takes in a request at most."""
        size = 48 + len(self.value or b"") + len(self.key or b"")
        for name, content in self.headers:
            size += 24 + 4 * len(name) + len(content or b"")
        return size


class Limits(NamedTuple):
    """The sizes and times that an outbox keeps to; times in seconds."""

    batch_records_max: int
    batch_bytes_max: int
    linger_s: float
    in_flight_batches_max: int
    delivery_timeout_s: float


class Batch:
    """Records of one partition that are appended together."""

    __slots__ = (
        "_request",
        "_rows",
        "bytes",
        "correlation",
        "created_at",
        "delivery",
        "gaps",
        "in_flight",
        "last_error",
        "maybe_stored",
        "payload",
        "record_count",
        "sent_at",
        "sequence",
        "target",
    )

    def __init__(self, target: Target, *, correlation: int, created_at: float) -> None:
        self.target = target
        self.correlation = correlation  # names it in requests and answers; a later batch has a higher one
        self.created_at = created_at
        self.delivery: Future[Appended] = ParentsFuture()
        self.delivery.set_running_or_notify_cancel()  # what may be on its way cannot be cancelled
        self.record_count = 0
        self.bytes = 0
        self.payload = b""  # the encoded request without producer and correlation, from `encode` on
        self.sequence = 0  # the first record's number under the partition's identity, from the first sending on
        self.sent_at = 0.0
        self.in_flight = False
        self.gaps = 0  # how often a node lacked what was acknowledged before it
        self.maybe_stored = False  # by an earlier try; then it must not be sent under another identity
        self.last_error: errors.WalrusError | None = None
        self._request = log_pb2.AppendRequest(topic=target.topic, partition=target.partition)
        self._rows = self._request.records.records

    def add(self, record: OutRecord, size: int) -> None:
        """Takes one record more. This and `size` are all that a record costs in Python."""
        value, key, timestamp_ms, headers = record
        rows = self._rows
        try:
            row = rows.add(key=key, value=value, timestamp_ms=timestamp_ms)
            for name, content in headers:
                row.headers.add(key=name, value=content)
        except (TypeError, ValueError):
            del rows[self.record_count :]  # a value of a wrong type must not leave half a record
            raise
        self.record_count += 1
        self.bytes += size

    def is_closed(self) -> bool:
        """Whether it takes no more records."""
        return bool(self.payload)

    def encode(self) -> None:
        """Fixes the records; the batch takes no more."""
        self.payload = self._request.SerializeToString()
        del self._request, self._rows

    def request(self, identity: Identity) -> bytes:
        """The encoded AppendRequest under *identity*."""
        head = log_pb2.AppendRequest(
            producer=log_pb2.Producer(id=identity.id, epoch=identity.epoch, base_sequence=self.sequence),
            correlation=self.correlation,
        )
        # Two encoded messages, one behind the other, are the encoding of the two merged.
        return self.payload + head.SerializeToString()


class Outcome(NamedTuple):
    """A batch whose delivery is decided, and how: give the result to its future, then `forget` it."""

    batch: Batch
    result: Appended | errors.WalrusError


@dataclass(slots=True, eq=False)
class _Partition:
    target: Target
    open: Batch | None = None  # takes records
    waiting: deque[Batch] = field(default_factory=deque)  # closed, never sent under `identity`
    # Sent under `identity`, undecided, in the order of their sequences. First those in flight, then those to be sent
    # again; mixed only while `resending` or `renewing`, when none may be sent.
    sent: deque[Batch] = field(default_factory=deque)
    identity: Identity | None = None
    next_sequence: int = 0
    resending: bool = False  # a try failed; what is in flight must be answered first
    renewing: bool = False  # there is a gap in front of `sent`: none of it is stored, all of it goes back to `waiting`
    held_until: float = 0.0


class Outbox:
    """All batches of one producer that are not delivered yet. Not to be used from two threads at once."""

    def __init__(self, limits: Limits) -> None:
        self.bytes = 0  # size of all records that are not forgotten
        self.resent_batches = 0
        self._limits = limits
        self._partitions: dict[Target, _Partition] = {}
        self._turns: deque[_Partition] = deque()  # who sends next
        self._undecided: dict[int, Batch] = {}  # by correlation, so the oldest first
        self._last_correlation = 0
        self._connection_error: errors.WalrusError | None = None

    def add(self, target: Target, record: OutRecord, *, size: int, now: float) -> tuple[Batch, bool]:
        """Puts a record into the open batch of its partition; True if a batch was begun or closed by it.

        Raises TooLarge if no node would take it.
        """
        _check_size(size)
        partition = self._partition(target)
        batch = partition.open
        changed = False
        if batch is not None and batch.bytes + size > self._limits.batch_bytes_max:
            self._close(partition)
            batch = None
        if batch is None:
            batch = Batch(target, correlation=self._last_correlation + 1, created_at=now)
            changed = True
        batch.add(record, size)
        self.bytes += size
        if changed:
            self._open(partition, batch)
        if batch.record_count >= self._limits.batch_records_max:
            self._close(partition)
            changed = True
        return batch, changed

    def add_batch(self, target: Target, records: Iterable[OutRecord], *, now: float) -> Batch:
        """Makes one batch of exactly these records, behind all that were added before.

        Raises TooLarge if no node would take it.
        """
        batch = Batch(target, correlation=self._last_correlation + 1, created_at=now)
        for record in records:
            batch.add(record, record.size())
        _check_size(batch.bytes)
        partition = self._partition(target)
        if partition.open is not None:
            self._close(partition)
        self.bytes += batch.bytes
        self._open(partition, batch)
        self._close(partition)
        return batch

    def close_all(self) -> int:
        """Closes all open batches, so that they are sent at once; the answer is a mark for `is_decided`."""
        for partition in self._partitions.values():
            if partition.open is not None:
                self._close(partition)
        return self._last_correlation

    def is_decided(self, mark: int) -> bool:
        """Whether every batch that was there when `close_all` answered *mark* is decided and forgotten."""
        oldest = next(iter(self._undecided), None)
        return oldest is None or oldest > mark

    def is_empty(self) -> bool:
        """Whether every batch is decided and forgotten."""
        return not self._undecided

    def forget(self, batch: Batch) -> None:
        """Frees the room of a decided batch, once its future has the result."""
        del self._undecided[batch.correlation]
        self.bytes -= batch.bytes

    # Sending

    def needs_identity(self) -> bool:
        """Whether batches wait for a producer id."""
        return any(
            partition.identity is None and not partition.renewing and (partition.waiting or partition.open)
            for partition in self._partitions.values()
        )

    def give_identity(self, identity: Identity) -> None:
        """Takes a producer id that nobody used before, for all partitions that need one."""
        self._connection_error = None
        for partition in self._partitions.values():
            if partition.identity is None and not partition.renewing:
                partition.identity = identity
                partition.next_sequence = 0

    def next_request(self, now: float) -> bytes | None:
        """The encoded request that is to be sent now, or None; its batch counts as in flight from here on."""
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            self._turns.rotate(-1)
            due = self._due(partition)
            if due is not None and due <= now:
                return self._send(partition, now)
        return None

    def next_due(self) -> float | None:
        """The time from which `next_request` has something, if nothing else happens."""
        times = (self._due(partition) for partition in self._partitions.values())
        return min((due for due in times if due is not None), default=None)

    def _due(self, partition: _Partition) -> float | None:
        if partition.identity is None or partition.resending or partition.renewing:
            return None
        if partition.sent and not partition.sent[-1].in_flight:
            return partition.held_until
        if len(partition.sent) >= self._limits.in_flight_batches_max:
            return None
        if partition.waiting:
            return partition.held_until
        if partition.open is not None:
            return max(partition.held_until, partition.open.created_at + self._limits.linger_s)
        return None

    def _send(self, partition: _Partition, now: float) -> bytes:
        assert partition.identity is not None, "a partition without identity is never due"
        batch = next((batch for batch in partition.sent if not batch.in_flight), None)
        if batch is not None:
            self.resent_batches += 1
        else:
            if not partition.waiting:
                self._close(partition)
            batch = partition.waiting.popleft()
            batch.sequence = partition.next_sequence
            partition.next_sequence = (partition.next_sequence + batch.record_count) % SEQUENCES
            partition.sent.append(batch)
        batch.in_flight = True
        batch.sent_at = now
        return batch.request(partition.identity)

    # Answers and failures

    def answered(self, response: log_pb2.AppendResponse, *, now: float, pause_s: float) -> list[Outcome]:
        """Takes one answer in; after a failure its partition rests for *pause_s*."""
        self._connection_error = None
        batch = self._undecided.get(response.correlation)
        if batch is None or not batch.in_flight:
            return []  # its time was up before
        batch.in_flight = False
        partition = self._partitions[batch.target]
        if response.HasField("error"):
            outcomes = self._refused(partition, batch, errors.from_message(response.error), held_until=now + pause_s)
        else:
            partition.sent.remove(batch)
            outcomes = [Outcome(batch, _appended(batch, response))]
        self._turn_when_all_answered(partition)
        return outcomes

    def is_oldest(self, correlation: int) -> bool:
        """Whether all that was sent to the partition before this request was acknowledged."""
        batch = self._undecided.get(correlation)
        return batch is not None and next(iter(self._partitions[batch.target].sent), None) is batch

    def connection_lost(self, error: errors.WalrusError) -> None:
        """What is in flight will not be answered any more; or no connection came about."""
        self._connection_error = errors.more_telling(self._connection_error, error)
        for partition in self._partitions.values():
            for batch in partition.sent:
                if batch.in_flight:
                    batch.in_flight = False
                    batch.maybe_stored = not partition.renewing
                    batch.last_error = errors.more_telling(batch.last_error, error)
            self._turn_when_all_answered(partition)

    def _refused(
        self, partition: _Partition, batch: Batch, error: errors.WalrusError, *, held_until: float
    ) -> list[Outcome]:
        batch.last_error = error
        if partition.renewing:
            return []
        may_pass = isinstance(error, errors.RetryableError | errors.OutcomeUnknown)
        if isinstance(error, errors.OutOfOrderSequence) and batch is partition.sent[0]:
            # All before it were acknowledged, so this node is behind the others: one that was cut off, and led before.
            batch.gaps += 1
            may_pass = batch.gaps < GAPS_MAX
        if may_pass or batch is not partition.sent[0]:
            # Unavailable may have been said by a node that forwarded the batch and then lost sight of it.
            batch.maybe_stored |= isinstance(error, errors.Unavailable | errors.OutcomeUnknown)
            partition.resending = True
            partition.held_until = max(partition.held_until, held_until)
            return []
        return self._give_up_oldest(partition, error)

    def _give_up_oldest(self, partition: _Partition, error: errors.WalrusError) -> list[Outcome]:
        """Decides the oldest sent batch as failed, and with it what becomes of those behind it."""
        oldest = partition.sent.popleft()
        if not (oldest.in_flight or oldest.maybe_stored):
            # It is not stored, so nothing with a later sequence can be.
            for batch in partition.sent:
                batch.maybe_stored = False
            partition.renewing = True
            self._turn_when_all_answered(partition)
            return [Outcome(oldest, error)]
        unknown: list[Batch] = [oldest]
        certain: list[Batch] = []
        for batch in partition.sent:
            (unknown if batch.in_flight or batch.maybe_stored else certain).append(batch)
        partition.sent = deque(certain)
        partition.renewing = True
        self._turn_when_all_answered(partition)
        for batch in unknown:
            batch.in_flight = False
        return [Outcome(batch, _unknown(batch, error)) for batch in unknown]

    def _turn_when_all_answered(self, partition: _Partition) -> None:
        """Ends `resending` and `renewing` once nothing of the partition is in flight."""
        if any(batch.in_flight for batch in partition.sent):
            return
        partition.resending = False
        if partition.renewing:
            partition.renewing = False
            partition.identity = None
            partition.waiting.extendleft(reversed(partition.sent))
            partition.sent.clear()

    # Time

    def oldest_sent_at(self) -> float | None:
        """When the batch was sent that has waited longest for its answer."""
        return min(
            (batch.sent_at for p in self._partitions.values() for batch in p.sent if batch.in_flight),
            default=None,
        )

    def next_expiry(self) -> float | None:
        """When the delivery time of the oldest batch is up."""
        oldest = next(iter(self._undecided.values()), None)
        return None if oldest is None else oldest.created_at + self._limits.delivery_timeout_s

    def expire(self, now: float) -> list[Outcome]:
        """Gives up the batches whose delivery time is up."""
        born_before = now - self._limits.delivery_timeout_s
        outcomes = []
        for partition in self._partitions.values():
            while partition.sent and partition.sent[0].created_at <= born_before:
                oldest = partition.sent[0]
                if partition.renewing:
                    partition.sent.popleft().in_flight = False
                    outcomes.append(Outcome(oldest, self._too_late(oldest)))
                    self._turn_when_all_answered(partition)
                else:
                    outcomes += self._give_up_oldest(partition, self._too_late(oldest))
            if partition.open is not None and partition.open.created_at <= born_before:
                self._close(partition)
            while partition.waiting and partition.waiting[0].created_at <= born_before:
                late = partition.waiting.popleft()
                outcomes.append(Outcome(late, self._too_late(late)))
        return outcomes

    def give_up(self, error: errors.WalrusError) -> list[Outcome]:
        """Decides every batch as failed: nothing can be sent any more."""
        outcomes = []
        for partition in self._partitions.values():
            if partition.open is not None:
                self._close(partition)
            for batch in partition.sent:
                is_unknown = batch.in_flight or batch.maybe_stored
                batch.in_flight = False
                outcomes.append(Outcome(batch, _unknown(batch, error) if is_unknown else error))
            outcomes += [Outcome(batch, error) for batch in partition.waiting]
            partition.sent.clear()
            partition.waiting.clear()
        return outcomes

    def _too_late(self, batch: Batch) -> errors.WalrusError:
        cause = batch.last_error or self._connection_error
        error = errors.Unavailable(
            f"{_name(batch)} could not be delivered within {self._limits.delivery_timeout_s:g} s;"
            f" the last try: {cause or 'no answer has come yet'}"
        )
        error.__cause__ = cause
        return error

    # Filling

    def _partition(self, target: Target) -> _Partition:
        partition = self._partitions.get(target)
        if partition is None:
            partition = self._partitions[target] = _Partition(target)
            self._turns.append(partition)
        return partition

    def _open(self, partition: _Partition, batch: Batch) -> None:
        assert partition.open is None, "one batch of a partition takes records"
        self._last_correlation = batch.correlation
        partition.open = self._undecided[batch.correlation] = batch

    def _close(self, partition: _Partition) -> None:
        batch, partition.open = partition.open, None
        assert batch is not None, "only an open batch is closed"
        batch.encode()
        partition.waiting.append(batch)


def _check_size(size: int) -> None:
    if size > REQUEST_BYTES_MAX:
        raise errors.TooLarge(f"{size} bytes are too large for one append, the limit is {REQUEST_BYTES_MAX}")


def _appended(batch: Batch, response: log_pb2.AppendResponse) -> Appended:
    return Appended(
        topic=batch.target.topic,
        partition=batch.target.partition,
        base_offset=response.base_offset,
        end_offset=response.end_offset,
        duplicate=response.duplicate,
    )


def _unknown(batch: Batch, cause: errors.WalrusError) -> errors.OutcomeUnknown:
    error = errors.OutcomeUnknown(f"{_name(batch)} may be stored or not; the last try: {batch.last_error or cause}")
    error.__cause__ = cause
    return error


def _name(batch: Batch) -> str:
    return f"a batch of {batch.record_count} records for {batch.target.topic}/{batch.target.partition}"
