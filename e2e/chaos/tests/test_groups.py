"""What a member of a group makes of what librdkafka gives it."""

import pytest
from chaos.group_verdict import GroupVerdict
from chaos.groups import Assigned
from confluent_kafka import Consumer, TopicPartition

PLACE = ("chaos-sticky", 0)


@pytest.fixture
def client() -> Consumer:
    """Stands for any: what it gives is told by hand."""
    return Consumer({"group.id": "g", "bootstrap.servers": ""})


@pytest.fixture
def assigned(client: Consumer) -> Assigned:
    """A member that got records 0 and 1 in one call, 2 and 3 in the next one, and 4 and 5 in the one after that."""
    member = Assigned(GroupVerdict("g"))
    member.on_assign(client, [TopicPartition(*PLACE)])
    member.verdict.commit(PLACE, 0)
    for first in (0, 2, 4):
        call(member, first, first + 1)
    return member


def call(assigned: Assigned, *offsets: int) -> None:
    """One call that gives these records."""
    assigned.begin()
    for offset in offsets:
        assigned.give(PLACE, offset, 100 + offset)


def test_records_of_the_call_before_a_rebalance_may_come_again_and_commits_do_not_go_back(
    assigned: Assigned, client: Consumer
) -> None:
    assigned.begin()
    assigned.on_assign(client, [])
    call(assigned, 4)
    assert [place.offset for place in assigned.next_offsets()] == [6]
    call(assigned, 5, 6)
    assigned.verdict.check_whole({PLACE: 7})
    assert assigned.verdict
    assert "1 times records again after a rebalance" in str(assigned.verdict)


def test_records_of_an_earlier_call_do_not_come_again(assigned: Assigned, client: Consumer) -> None:
    assigned.begin()
    assigned.on_assign(client, [])
    call(assigned, 3)
    assert "3 was given behind 5" in str(assigned.verdict)


def test_nothing_comes_again_without_a_rebalance(assigned: Assigned) -> None:
    call(assigned, 5)
    assert "5 was given behind 5" in str(assigned.verdict)


def test_nothing_comes_again_once_the_member_got_more_after_the_rebalance(assigned: Assigned, client: Consumer) -> None:
    assigned.begin()
    assigned.on_assign(client, [])
    call(assigned, 6)
    call(assigned, 6)
    assert "6 was given behind 6" in str(assigned.verdict)


def test_a_rebalance_is_no_excuse_for_records_that_do_not_come(assigned: Assigned, client: Consumer) -> None:
    assigned.begin()
    assigned.on_assign(client, [])
    call(assigned, 7)
    assert "7 was given behind 5" in str(assigned.verdict)
