"""The command-line tools of Apache Kafka: `kafka-topics.sh` and its sisters, which start these classes."""

import re

from walrus_compat.feature import check
from walrus_compat.program import told
from walrus_compat.stage import Stage

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
LINES = [f"line {number}" for number in range(10)]
PERF_RECORDS = 5_000


def command_line(stage: Stage) -> None:
    """Topics, settings, records, groups and performance, from the shell."""
    server = ("--bootstrap-server", stage.bootstrap)
    topic, group = stage.name("tools"), stage.name("group")
    of_topic = (*server, "--topic", topic)

    told(stage, TOPICS, *of_topic, "--create", "--partitions", "2")
    described = told(stage, TOPICS, *of_topic, "--describe")
    check("PartitionCount: 2" in described, f"kafka-topics describes {described}")
    told(stage, TOPICS, *of_topic, "--alter", "--partitions", "3")
    listed = told(stage, TOPICS, *server, "--list").split()
    check(topic in listed, f"kafka-topics lists {listed}")

    entity = (*server, "--entity-type", "topics", "--entity-name", topic)
    told(stage, CONFIGS, *entity, "--alter", "--add-config", "retention.ms=86400000")
    described = told(stage, CONFIGS, *entity, "--describe")
    check("retention.ms=86400000" in described, f"kafka-configs describes {described}")

    told(stage, CONSOLE_PRODUCER, *of_topic, sent="".join(f"{line}\n" for line in LINES))
    reading = ("--from-beginning", "--max-messages", str(len(LINES)), "--timeout-ms", "60000", "--group", group)
    read = told(stage, CONSOLE_CONSUMER, *of_topic, *reading).splitlines()
    check(sorted(read) == LINES, f"kafka-console-consumer read {read}")

    groups(stage, topic, group)
    performance(stage, topic)
    told(stage, TOPICS, *of_topic, "--delete")
    check(topic not in told(stage, TOPICS, *server, "--list").split(), f"{topic} is still listed")


def groups(stage: Stage, topic: str, group: str) -> None:
    """`kafka-consumer-groups`: list, describe, reset and delete."""
    server, of_group = ("--bootstrap-server", stage.bootstrap), ("--group", group)
    check(group in told(stage, GROUPS, *server, "--list").split(), "kafka-consumer-groups does not list the group")
    check(lag(stage, topic, group) == 0, "the group lags behind what it read")
    told(stage, GROUPS, *server, *of_group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    check(lag(stage, topic, group) == len(LINES), "the group was not reset")
    told(stage, GROUPS, *server, *of_group, "--delete")
    check(group not in told(stage, GROUPS, *server, "--list").split(), "the group is still listed")


def lag(stage: Stage, topic: str, group: str) -> int:
    """How much a group has left to read, as `kafka-consumer-groups --describe` shows it."""
    shown = told(stage, GROUPS, "--bootstrap-server", stage.bootstrap, "--group", group, "--describe")
    rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
    check(bool(rows) and all(row[1] == topic for row in rows), f"kafka-consumer-groups describes {shown}")
    return sum(int(row[5]) for row in rows)


def performance(stage: Stage, topic: str) -> None:
    """`kafka-producer-perf-test` and `kafka-consumer-perf-test`: not how fast, but that all records come through."""
    size = ("--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1")
    shown = told(stage, PRODUCER_PERF, "--bootstrap-server", stage.bootstrap, "--topic", topic, *size)
    check(f"{PERF_RECORDS} records sent" in shown, f"kafka-producer-perf-test shows {shown}")
    amount = ("--num-records", str(PERF_RECORDS))
    shown = told(stage, CONSUMER_PERF, "--bootstrap-server", stage.bootstrap, "--topic", topic, *amount)
    counts = [int(each) for each in re.findall(r"(?<=, )\d+(?=, )", shown)]
    check(any(count >= PERF_RECORDS for count in counts), f"kafka-consumer-perf-test shows {shown}")
