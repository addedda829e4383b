"""What an application is told of errors, by kind: it is excused where Apache Kafka has it told the same. Pure."""

import re
from collections.abc import Sequence

from walrus_compat.feature import Wrong

# One thing that happens is told in several words, by the moment at which it happens.
KINDS = (
    (
        "a broker that does not answer, or whose connection breaks",
        r"\bEOF\b|connection re|broken pipe|disconnected|connected$|ECONNRE|are down|Broker \d+ not found",
    ),
    (
        "a leader that moves",
        r"not the leader|leadership election|NOT_LEADER|NotLeader|LEADER_NOT_AVAILABLE|LeaderNotAvailable",
    ),
    (
        "a coordinator that moves",
        r"not.?(the )?coordinator|NOT_COORDINATOR|COORDINATOR_NOT_AVAILABLE|CoordinatorNotAvailable",
    ),
    # franz-go says that records are lost where it looks for its place in a topic that has been made again.
    (
        "a topic that is gone",
        r"Unknown (topic|partition)|UNKNOWN_TOPIC|topic or partition that does not exist|lost records",
    ),
    ("an offset that is out of range", r"OFFSET_OUT_OF_RANGE|OffsetOutOfRange|outside the range of offsets"),
)


def kind(told: str) -> str:
    """The kind of what was told: a name of the list, else the words without what differs from run to run."""
    for name, pattern in KINDS:
        if re.search(pattern, told, re.IGNORECASE):
            return name
    return re.sub(r"\d+", "N", told)


def kinds(wrong: Sequence[Wrong]) -> list[str]:
    """The kinds of all that was told, each once, in order."""
    return list(dict.fromkeys(kind(each.told) for each in wrong if each.told is not None))


def summary(wrong: Sequence[Wrong]) -> list[str]:
    """What was wrong, line by line: of what was told only the first of each kind."""
    first: dict[str, tuple[str, int]] = {}
    for each in wrong:
        key = each.what if each.told is None else kind(each.told)
        text, count = first.get(key, (each.what, 0))
        first[key] = (text, count + 1)
    return [text if count == 1 else f"{text} (and {count - 1} more of this kind)" for text, count in first.values()]


def is_all_told(wrong: Sequence[Wrong]) -> bool:
    """Whether an application was told of errors, and nothing else is wrong: what is lost nobody can excuse."""
    return bool(wrong) and all(each.told is not None for each in wrong)


def is_as_kafka(wrong: Sequence[Wrong], with_kafka: Sequence[Wrong]) -> bool:
    """Whether all that is wrong was told, and something of the same kind was told with Apache Kafka, too."""
    return is_all_told(wrong) and set(kinds(wrong)) <= set(kinds(with_kafka))
