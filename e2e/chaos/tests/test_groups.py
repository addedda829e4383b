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


@pytest.fixture
def rebalanced(assigned: Assigned, client: Consumer) -> Assigned:
    """The same member, whose group was rebalanced in a call that gave nothing."""
    assigned.begin()
    assigned.on_assign(client, [])
    return assigned


def test_records_of_the_call_before_a_rebalance_may_come_again_and_commits_do_not_go_back(rebalanced: Assigned) -> None:
    call(rebalanced, 4)
    assert [place.offset for place in rebalanced.next_offsets()] == [6]
    call(rebalanced, 5, 6)
    rebalanced.verdict.check_whole({PLACE: 7})
    assert rebalanced.verdict
    assert "1 times records again after a rebalance" in str(rebalanced.verdict)


def test_nothing_comes_again_without_a_rebalance(assigned: Assigned) -> None:
    call(assigned, 5)
    assert "5 was given behind 5" in str(assigned.verdict)


@pytest.mark.parametrize(
    ("calls", "false"),
    [
        pytest.param([[3]], "3 was given behind 5", id="records of an earlier call"),
        pytest.param([[6], [6]], "6 was given behind 6", id="records from after it"),
        pytest.param([[7]], "7 was given behind 5", id="records that do not come"),
    ],
)
def test_a_rebalance_excuses_nothing_else(rebalanced: Assigned, calls: list[list[int]], false: str) -> None:
    for offsets in calls:
        call(rebalanced, *offsets)
    assert false in str(rebalanced.verdict)
