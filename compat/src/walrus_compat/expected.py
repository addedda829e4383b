"""What an application is told by a client though nothing is lost, and that Apache Kafka would have it told as well."""

import re

# By client and feature: a pattern that everything that is told must match, and why Kafka shows it too.
BROKEN_CONNECTION = r"(EOF|connection reset by peer|broken pipe|connection refused)$"
AS_KAFKA: dict[tuple[str, str], tuple[str, str]] = {
    ("sarama", "made again"): (
        "outside the range of offsets",
        "its reader of a partition ends where an offset is out of range; the application has to begin anew",
    ),
    ("franz-go", "made again"): (
        "UNKNOWN_TOPIC_ID",
        "once it has seen a topic's id it takes no other one under the name; the application has to purge the topic",
    ),
    ("sarama", "rolling restart"): (
        f"^(plain|idempotent): the reader was told: .*{BROKEN_CONNECTION}",
        "its readers tell each connection that a broker closes, and go on",
    ),
    ("sarama", "leaders killed"): (
        f"^(plain|idempotent): the (reader|producer) was told: .*({BROKEN_CONNECTION}|In the middle of a leader.*)",
        "its readers tell each connection that breaks; its producers give a record up after three tries, 100 ms apart",
    ),
}


def reason(client: str, feature: str, wrong: tuple[str, ...]) -> str | None:
    """Why all of this is as it is with Kafka; `None` if any of it is not."""
    pattern, why = AS_KAFKA.get((client, feature), (None, None))
    if pattern is None or not all(re.search(pattern, what) for what in wrong):
        return None
    return why
