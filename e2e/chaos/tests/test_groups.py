"""What a member of a group makes of what librdkafka gives it."""

from chaos.group_verdict import GroupVerdict
from chaos.groups import Assigned
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

PLACE = ("chaos-sticky", 0)


class Client(Consumer):
    """Stands for librdkafka, which cannot be made to skip records at will."""

    def __init__(self, *, refuses: int = 0) -> None:
        super().__init__({"group.id": "g", "bootstrap.servers": ""})
        self.refuses = refuses
        self.sought: list[tuple[str, int, int]] = []

    def seek(self, place: TopicPartition) -> None:
        if self.refuses:
            self.refuses -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((place.topic, place.partition, place.offset))


def member() -> Assigned:
    """One that was given two records."""
    assigned = Assigned(GroupVerdict("g"))
    assigned.on_assign(Client(), [TopicPartition(*PLACE)])
    for offset in range(2):
        assigned.give(PLACE, offset, 100 + offset)
    assigned.verdict.commit(PLACE, 1)
    return assigned


def test_records_that_only_the_client_skipped_are_read_again_and_counted() -> None:
    assigned, client = member(), Client(refuses=1)
    for offset in (4, 5):
        assigned.give(PLACE, offset, 100 + offset)
    for _ in range(2):
        assigned.seek(client)
    assert client.sought == [(*PLACE, 2)]
    for offset in range(2, 6):
        assigned.give(PLACE, offset, 100 + offset)
    assigned.verdict.check_whole({PLACE: 6})
    assert assigned.verdict
    assert "1 times records that the client skipped were read again" in str(assigned.verdict)


def test_records_that_do_not_come_the_second_time_either_are_missing() -> None:
    assigned, client = member(), Client()
    assigned.give(PLACE, 4, 104)
    assigned.seek(client)
    assigned.give(PLACE, 4, 104)
    assert "4 was given behind 1" in str(assigned.verdict)
    assert client.sought == [(*PLACE, 2)]


def test_clients_that_skip_records_again_and_again_are_not_believed() -> None:
    assigned, client = member(), Client()
    for first in (2, 6, 10):
        assert assigned.verdict
        assigned.give(PLACE, first + 2, 102 + first)
        assigned.seek(client)
        for offset in range(first, first + 4):
            assigned.give(PLACE, offset, 100 + offset)
    assert "more than 2 times" in str(assigned.verdict)


def test_a_step_back_is_no_gap_of_the_client() -> None:
    assigned, client = member(), Client()
    assigned.give(PLACE, 0, 100)
    assigned.seek(client)
    assert "0 was given behind 1" in str(assigned.verdict)
    assert client.sought == []


def test_a_partition_that_was_revoked_is_not_sought() -> None:
    assigned, client = member(), Client()
    assigned.give(PLACE, 4, 104)
    assigned.on_revoke(client, [TopicPartition(*PLACE)])
    assigned.seek(client)
    assert client.sought == []
