"""What can go wrong, and what the caller may do about it.

    WalrusError
    ├── RetryableError        not done, or safe to do again; the client tries again by itself until its timeout
    │   ├── NotLeader         the node asked does not lead the open segment (any more)
    │   ├── Fenced            a newer epoch took over
    │   ├── NoSpace           the disk of the leader is full
    │   └── Unavailable       no node could be reached, or the one reached could not serve now
    │       ├── NoAnswer      the one reached did not say why
    │       └── OtherCluster  what is reached are nodes of another cluster
    ├── RejectedError         not done, and asking again in the same way will not help
    │   ├── UnknownTopic, UnknownSegment, InvalidTopic, TopicExists
    │   ├── UnknownGroup, GroupHasMembers, NotAllowed
    │   ├── OffsetOutOfRange  with `requested`, `start`, `end`
    │   ├── OutOfOrderSequence, ProducerFenced
    │   ├── TooLarge
    │   ├── InvalidConfig     with `key`
    │   ├── VersionMismatch   with `expected`, `current`
    │   ├── UnknownNode
    │   ├── InvalidRequest, InvalidFrame
    │   ├── WrongPort         something answers there, but not what was asked for
    │   ├── Closed            by this program: the client or producer takes no more
    │   └── Forked            this process is a child of the one that made the client
    ├── OutcomeUnknown        an append, or a change, that may have happened, or not
    └── CorruptionError       stored bytes fail their checksum; nothing wrong was handed out

The broker names the kind of an error by a stable `reason`; `from_message` is the only place that maps it to a class.
The text protocol has no field for it: there the first words of a message are stable, and `from_text` knows them.
"""

# ruff: noqa: N818 - the classes bear the names that the broker gives

from walrus_client.v1 import log_pb2


class WalrusError(Exception):
    """Anything that Walrus or the way to it refused or failed; `reason` is the broker's name for it, or ""."""

    reason: str

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or type(self).__name__


class RetryableError(WalrusError):
    """It was not done, or may safely be asked again: later, or of another node."""


class NotLeader(RetryableError):
    """The node asked does not lead the open segment (any more)."""


class Fenced(RetryableError):
    """A newer epoch of the partition took over."""


class NoSpace(RetryableError):
    """The disk of the leader is full; it serves again when space is made."""


class Unavailable(RetryableError):
    """No node could be reached, or the one reached could not serve the request now."""


class NoAnswer(Unavailable):
    """The node did not answer in time, so it is not known why."""


class OtherCluster(Unavailable):
    """Nodes of another cluster answer where this client knew nodes of its own, and nobody of its own does."""


class RejectedError(WalrusError):
    """It was not done, and the same request will not be taken later either."""


class UnknownTopic(RejectedError):
    """There is no topic of that name, or it has no such partition."""


class UnknownSegment(RejectedError):
    """The topic does not list this segment (any more): list its segments again."""


class InvalidTopic(RejectedError):
    """The name is not 1 to 249 characters of [A-Za-z0-9._-], or is "." or ".."."""


class TopicExists(RejectedError):
    """There is a topic of that name, with another number of partitions, or other settings."""


class OffsetOutOfRange(RejectedError):
    """The offset is below the first one kept, or above the high watermark."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        requested: int | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        super().__init__(message, reason=reason)
        self.requested = requested
        self.start = start
        self.end = end


class OutOfOrderSequence(RejectedError):
    """A sequence of this producer does not follow the last one that is stored."""


class ProducerFenced(RejectedError):
    """A newer epoch of this producer id writes."""


class TooLarge(RejectedError):
    """The batch, or one of its records, is larger than the broker takes."""


class InvalidRequest(RejectedError):
    """The request does not follow the protocol."""


class InvalidFrame(InvalidRequest):
    """The text protocol's answer to a request longer than the node takes, or to bytes that are no request."""


class WrongPort(RejectedError):
    """Something answers at the address, but does not speak the protocol that was asked for: it is another port."""


class Closed(RejectedError):
    """The client or producer was closed by this program, and takes no more."""


class Forked(RejectedError):
    """This process was forked from the one that made the client or producer: it needs one of its own."""


class InvalidConfig(RejectedError):
    """There is no setting `key`, or it does not take the value."""

    def __init__(self, message: str, *, reason: str = "", key: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.key = key


class VersionMismatch(RejectedError):
    """What was to be changed has another version than expected: read it again, and decide again."""

    def __init__(
        self, message: str, *, reason: str = "", expected: int | None = None, current: int | None = None
    ) -> None:
        super().__init__(message, reason=reason)
        self.expected = expected
        self.current = current


class UnknownGroup(RejectedError):
    """There is no consumer group of that name, or nothing was ever read with `GET` of the topic."""


class GroupHasMembers(RejectedError):
    """The group is in use, and goes on where it is: stop its members first."""


class NotAllowed(RejectedError):
    """The listener lets its clients change no topics; ask at another one."""


class InvalidTimestamp(RejectedError):
    """A record's timestamp is further from the leader's clock than its topic takes; nothing of its batch is stored."""


class UnknownNode(RejectedError):
    """The cluster lists no such node."""


class Unauthenticated(RejectedError):
    """It changes something, and the node wants the token of its cluster's secret."""


class OutcomeUnknown(WalrusError):
    """An append or a change that may have happened, or not: no answer came, or it was lost, until the time was up."""


class CorruptionError(WalrusError):
    """Stored bytes fail their checksum; nothing wrong was handed out."""


def from_message(told: log_pb2.Error) -> WalrusError:
    """Return the error that a broker told; a reason that this client does not know yet goes by `retryable`."""
    kind = _KINDS.get(told.reason, Unavailable if told.retryable else RejectedError)
    if kind is OffsetOutOfRange:
        return OffsetOutOfRange(told.message, reason=told.reason, **_numbers(told, "requested", "start", "end"))
    if kind is VersionMismatch:
        return VersionMismatch(told.message, reason=told.reason, **_numbers(told, "expected", "current"))
    if kind is InvalidConfig:
        return InvalidConfig(told.message, reason=told.reason, key=told.facts.get("key"))
    return kind(told.message, reason=told.reason)


def from_text(message: str) -> WalrusError:
    """Return the error that a node told in the text protocol, behind `ERR `; its first words name its kind."""
    for words, kind in _KINDS_BY_WORDS:
        if message.startswith(words):
            return kind(message)
    return RejectedError(message)


def more_telling(known: WalrusError | None, new: WalrusError) -> WalrusError:
    """Return the error of two tries to tell: a later one without an answer does not hide what a node said before."""
    return new if known is None or not isinstance(new, NoAnswer) else known


def _numbers(told: log_pb2.Error, *names: str) -> dict[str, int]:
    return {name: int(told.facts[name]) for name in names if name in told.facts}


_KINDS: dict[str, type[WalrusError]] = {
    "NotLeader": NotLeader,
    "Fenced": Fenced,
    "NoSpace": NoSpace,
    "Unavailable": Unavailable,
    "UnknownTopic": UnknownTopic,
    "UnknownPartition": UnknownTopic,
    "UnknownSegment": UnknownSegment,
    "InvalidTopic": InvalidTopic,
    "TopicExists": TopicExists,
    "TopicDiffers": TopicExists,
    "OffsetOutOfRange": OffsetOutOfRange,
    "OutOfOrderSequence": OutOfOrderSequence,
    "ProducerFenced": ProducerFenced,
    "TooLarge": TooLarge,
    "UnknownGroup": UnknownGroup,
    "GroupHasMembers": GroupHasMembers,
    "NotAllowed": NotAllowed,
    "InvalidConfig": InvalidConfig,
    "VersionMismatch": VersionMismatch,
    "UnknownNode": UnknownNode,
    "Unauthenticated": Unauthenticated,
    "OtherDisk": UnknownNode,
    "NotAdmitted": Unavailable,
    "InvalidRequest": InvalidRequest,
    "InvalidBatch": InvalidRequest,
    "InvalidTimestamp": InvalidTimestamp,
    "OutcomeUnknown": OutcomeUnknown,
    "Timeout": Unavailable,
    "Storage": Unavailable,
    "Internal": Unavailable,
    "Corrupted": CorruptionError,
    "DataLoss": CorruptionError,
}

# The broker's tests hold these words still (`first_words_tell_the_kind` of its text protocol).
_KINDS_BY_WORDS: tuple[tuple[str, type[WalrusError]], ...] = (
    ("unavailable: ", Unavailable),
    ("timed out after ", Unavailable),
    ("NotLeaderForPartition: ", NotLeader),
    ("no space left ", NoSpace),
    ("storage of node ", Unavailable),
    ("outcome unknown: ", OutcomeUnknown),
    ("unknown topic ", UnknownTopic),
    ("invalid topic name ", InvalidTopic),
    ("invalid frame length", InvalidFrame),
    ("invalid utf-8", InvalidFrame),
    ("offsets [", CorruptionError),
)
