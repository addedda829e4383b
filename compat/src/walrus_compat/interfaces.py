"""What user interfaces ask, which show a whole cluster at once: replayed by the Java client's admin."""

from confluent_kafka import Consumer, TopicPartition

from walrus_compat.feature import SOON_S, check, check_told
from walrus_compat.program import ours
from walrus_compat.stage import Stage

TOPICS, GROUPS = 200, 25  # what Kafbat asks for at once, in ReactiveAdminClient
# What is answered: how many there are, or an error that the interfaces catch.
ANSWERS: dict[str, int | str] = {
    "describeCluster": 3,
    "describeCluster, with what is allowed": 3,
    "describeConfigs of brokers": 2,
    "describeConfigs of topics": TOPICS,
    "describeLogDirs": 1,
    # Kafbat then shows no ACLs (ReactiveAdminClient.isAuthorizedSecurityEnabled); AKHQ, which asks only for its page of
    # ACLs, shows the error, as with a Kafka that has no authorizer (AbstractKafkaWrapper.describeAcls).
    "describeAcls": "SecurityDisabledException",
    "describeTopics": TOPICS,
    "listOffsets, earliest": TOPICS,
    "listOffsets, latest": TOPICS,
    "listOffsets, newest": TOPICS,
    "listGroups": GROUPS,
    "describeConsumerGroups": GROUPS,
    "listConsumerGroupOffsets": GROUPS,
    "listPartitionReassignments": 0,
    "describeProducers": TOPICS,
    # Only Kafbat's page of quotas asks (quota.ClientQuotaService), and shows the error; AKHQ does not.
    "describeClientQuotas": "UnsupportedVersionException",
}


def asked(stage: Stage) -> None:
    """All of it is asked once, of as many topics and groups as are asked for at once."""
    prefix = stage.name("interface")
    (first, *_) = stage.many(prefix, TOPICS)
    for number in range(GROUPS):
        commit(stage, f"{prefix}-{number}", first)
    with stage.drive(ours("Interface"), "ask", prefix) as driver:
        events = driver.finish(SOON_S * 2)
    check_told("interface", events)
    found = {event["asked"]: event.get("answer", event.get("refused")) for event in events if "asked" in event}
    wrong = {question: answer for question, answer in found.items() if answer != ANSWERS[question]}
    check(found.keys() == ANSWERS.keys() and not wrong, f"it was answered {wrong or found}")


def commit(stage: Stage, group: str, topic: str) -> None:
    """Make a group that has committed, without members."""
    consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
