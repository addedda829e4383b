"""The options of the source, parsed once into a frozen dataclass.

Names and meanings are those of Spark's Kafka source where it has them. Names are compared without
regard to case, as Spark does; an unknown one is an error that names the nearest.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark_walrus.errors import Reason, SourceError

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
BYTES_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Bound:
    """Where a range begins or ends, before the cluster was asked.

    `everywhere` is EARLIEST or LATEST for all partitions; if it is None, `offsets` says the offset, or
    one of the two, for each (topic, partition).
    """

    everywhere: int | None
    offsets: tuple[tuple[tuple[str, int], int], ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    """What the user of the source asked for."""

    bootstrap_servers: tuple[str, ...]
    topics: tuple[str, ...]
    starting: Bound | None = None  # None: the default of the kind of query
    ending: Bound | None = None
    offsets_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    partitions_min: int = 1
    bytes_per_partition_max: int = 64 << 20
    include_headers: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SourceOptions":
        """Parses the options of a query; raises OPTION_INVALID for what is missing, unknown or malformed."""
        options = {_known(name): value for name, value in given.items() if value is not None}
        servers = _one_of(options, "bootstrap.servers", "kafka.bootstrap.servers")
        if servers is None:
            raise invalid("bootstrap.servers", "it is required: HOST:PORT of the gRPC port of any broker")
        if "subscribe" not in options:
            raise invalid("subscribe", "it is required: the topics to read, separated by commas")
        return cls(
            bootstrap_servers=servers_of(servers),
            topics=_topics(options["subscribe"]),
            starting=_optional(options, "startingOffsets", _bound),
            ending=_optional(options, "endingOffsets", _bound),
            offsets_per_trigger_max=_optional(options, "maxOffsetsPerTrigger", _count),
            bytes_per_trigger_max=_optional(options, "maxBytesPerTrigger", _byte_count),
            partitions_min=_optional(options, "minPartitions", _count) or cls.partitions_min,
            bytes_per_partition_max=_optional(options, "maxBytesPerPartition", _byte_count)
            or cls.bytes_per_partition_max,
            include_headers=_optional(options, "includeHeaders", _flag) or False,
            fail_on_data_loss=_optional(options, "failOnDataLoss", _flag) is not False,
        )

    def batch_range(self) -> tuple[Bound, Bound]:
        """The range of a batch query: all that is there by default."""
        starting = self.starting or Bound(EARLIEST)
        ending = self.ending or Bound(LATEST)
        _refuse(starting, LATEST, "startingOffsets", "latest (-1) is for streams: a batch would be empty")
        _refuse(ending, EARLIEST, "endingOffsets", "earliest (-2) would make the range empty")
        return starting, ending

    def stream_start(self) -> Bound:
        """Where a new stream begins: behind what is there by default."""
        if self.ending is not None:
            raise invalid("endingOffsets", "a stream has no end: use it in a batch query (spark.read)")
        return self.starting or Bound(LATEST)


def invalid(option: str, problem: str) -> SourceError:
    """The error for an option that is not as it should be."""
    return SourceError(Reason.OPTION_INVALID, f"option {option}: {problem}", option=option)


NAMES: Final = (
    "bootstrap.servers",
    "kafka.bootstrap.servers",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxBytesPerPartition",
    "includeHeaders",
    "failOnDataLoss",
)
_BY_LOWER_CASE: Final = {name.lower(): name for name in NAMES}

# Options of Spark's Kafka source that this one does not have, and what to do without them.
_BY_NAME: Final = "name the topics with subscribe"
_BY_OFFSET: Final = "choose offsets with startingOffsets and endingOffsets, and filter by the column timestamp"
_IN_FULL: Final = "leave it out; maxOffsetsPerTrigger and maxBytesPerTrigger bound a micro-batch"
_NO_GROUP: Final = "leave it out: there are no consumer groups, the checkpoint says how far a query got"
_PATIENT: Final = "leave it out: a query waits for nodes that are away, for up to a minute"
_KAFKAS: Final = {
    "subscribePattern": _BY_NAME,
    "assign": _BY_NAME,
    "startingTimestamp": _BY_OFFSET,
    "startingOffsetsByTimestamp": _BY_OFFSET,
    "startingOffsetsByTimestampStrategy": _BY_OFFSET,
    "endingTimestamp": _BY_OFFSET,
    "endingOffsetsByTimestamp": _BY_OFFSET,
    "minOffsetsPerTrigger": _IN_FULL,
    "maxTriggerDelay": _IN_FULL,
    "maxRecordsPerPartition": "use minPartitions or maxBytesPerPartition",
    "kafkaConsumer.pollTimeoutMs": _PATIENT,
    "fetchOffset.numRetries": _PATIENT,
    "fetchOffset.retryIntervalMs": _PATIENT,
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
}


def _known(name: str) -> str:
    lower = name.lower()
    known = _BY_LOWER_CASE.get(lower)
    if known is not None:
        return known
    for kafkas, instead in _KAFKAS.items():  # Spark hands over names in lower case
        if kafkas.lower() == lower:
            raise invalid(kafkas, f"Spark's Kafka source has it, this one does not yet; {instead}")
    if lower.startswith("kafka."):
        raise invalid(name, "settings of a Kafka client have no meaning here; leave it out")
    near = difflib.get_close_matches(lower, _BY_LOWER_CASE, n=1)
    hint = f"did you mean {_BY_LOWER_CASE[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
    raise invalid(name, f"there is no such option; {hint}")


def _one_of(options: Mapping[str, str], name: str, alias: str) -> str | None:
    if name in options and alias in options and options[name] != options[alias]:
        raise invalid(alias, f"it says something else than {name}: give one of them")
    return options.get(name, options.get(alias))


def _optional(options: Mapping[str, str], name: str, parse: Callable[[str, str], T]) -> T | None:
    return parse(name, options[name]) if name in options else None


def servers_of(value: str) -> tuple[str, ...]:
    """The addresses of `bootstrap.servers`; raises OPTION_INVALID."""
    servers = tuple(part.strip() for part in value.split(",") if part.strip())
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise invalid("bootstrap.servers", f"{server!r} is not HOST:PORT")
    if not servers:
        raise invalid("bootstrap.servers", "it is empty")
    return servers


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(sorted({part.strip() for part in value.split(",") if part.strip()}))
    for topic in topics:
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise invalid("subscribe", f"{topic!r} is not a topic name: 1 to 249 of A-Z a-z 0-9 . _ -")
    if not topics:
        raise invalid("subscribe", "it names no topic")
    return topics


def _bound(name: str, value: str) -> Bound:
    if value.strip().lower() == "earliest":
        return Bound(EARLIEST)
    if value.strip().lower() == "latest":
        return Bound(LATEST)
    example = '{"topic": {"0": 23, "1": -2}}'
    try:
        parsed = json.loads(value)
    except ValueError:
        raise invalid(name, f"it is none of earliest, latest and JSON like {example}") from None
    offsets: dict[tuple[str, int], int] = {}
    if not isinstance(parsed, dict):
        raise invalid(name, f"expected JSON like {example}")
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise invalid(name, f"expected JSON like {example}")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < EARLIEST:
                raise invalid(name, f"{topic}: {partition!r}: {offset!r} is not a partition and its offset")
            offsets[topic, int(partition)] = offset
    return Bound(None, tuple(sorted(offsets.items())))


def _refuse(bound: Bound, offset: int, option: str, problem: str) -> None:
    if bound.everywhere == offset or any(given == offset for _, given in bound.offsets):
        raise invalid(option, problem)


def _count(name: str, value: str) -> int:
    if not value.strip().isdecimal() or int(value) == 0:
        raise invalid(name, f"{value!r} is not a whole number above 0")
    return int(value)


def _byte_count(name: str, value: str) -> int:
    match = re.fullmatch(r"([0-9]+)([bkmg]?)", value.strip().lower())
    if match is None or int(match[1]) == 0:
        raise invalid(name, f"{value!r} is not a number of bytes above 0, such as 1048576 or 64m")
    return int(match[1]) * BYTES_UNITS[match[2]]


def _flag(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise invalid(name, f"{value!r} is neither true nor false")
    return value.strip().lower() == "true"
