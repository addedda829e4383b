"""What the runner calls wrong: a verdict that lets losses pass would make the whole table worthless."""

from walrus_compat import kinds, verdict
from walrus_compat.feature import Wrong
from walrus_compat.results import Outcome


def test_a_number_is_read_from_the_value_that_every_driver_sends() -> None:
    assert verdict.number_of(b"p 17 ....") == verdict.number_of("p 17 ") == 17


def test_losses_repetitions_and_other_orders_are_found() -> None:
    acked = {number: number for number in range(4)}
    assert verdict.of_producer([0, 1, 2, 3], acked, is_idempotent=True) == []
    assert verdict.of_producer([0, 1, 3], acked, is_idempotent=False) == ["1 acknowledged and lost: 2"]
    assert "1 twice: 2" in verdict.of_producer([0, 1, 2, 2, 3], acked, is_idempotent=True)
    assert verdict.of_producer([0, 1, 2, 2, 3], acked, is_idempotent=False) == []
    assert "1 out of order: 1" in verdict.of_producer([0, 2, 1, 3], acked, is_idempotent=True)
    assert verdict.of_producer([0, 1, 2, 3], {0: 0, 3: 7}, is_idempotent=True) == [
        "1 not at the offset that was told: 3"
    ]


def test_a_reader_that_jumps_or_stops_is_found() -> None:
    assert verdict.of_reader([0, 1, 2], 0, 3) == []
    assert verdict.of_reader([], 0, 0) == []
    assert verdict.of_reader([0, 2], 0, 3) == ["the reader jumped at 2"]
    assert verdict.of_reader([1, 2], 0, 3) == ["the reader began at 1, not at 0"]
    assert verdict.of_reader([0, 1], 0, 3) == ["the reader ended at 2, and the log at 3"]


def test_a_member_of_a_group_may_read_again_what_it_has_not_committed() -> None:
    assert verdict.of_reader([0, 1, 2, 1, 2, 3], 0, 4, rereads=True) == []
    assert verdict.of_reader([0, 1, 3], 0, 4, rereads=True) == ["the reader jumped at 3"]


def event(at: float, member: int, **told: object) -> dict[str, object]:
    return {"at": at, "member": member, **told}


def test_a_group_that_loses_records_or_takes_commits_back_is_found() -> None:
    first = [
        event(1, 0, assigned=[0]),
        event(2, 0, read=0, partition=0),
        event(3, 0, committed=1, partition=0),
        event(4, 0, read=1, partition=0),
    ]
    assert verdict.of_group([*first, event(5, 1, assigned=[0]), event(6, 1, read=1, partition=0)], {0: 2}) == []
    assert verdict.of_group(first, {0: 3}) == ["1 of partition 0 were not delivered: 2"]
    assert verdict.of_group(first, {0: 3}, taken_max=1) == []
    assert verdict.of_group(first, {0: 4}, taken_max=1) == ["2 of partition 0 were not delivered: 2, 3"]
    again = [*first, event(5, 1, assigned=[0]), event(6, 1, read=0, partition=0)]
    assert verdict.of_group(again, {0: 2}) == [
        "commits went back 1 times: 0 of partition 0 was read behind a commit of 1"
    ]
    back = [*first, event(5, 0, committed=2, partition=0), event(6, 0, committed=1, partition=0)]
    assert verdict.of_group(back, {0: 2}) == ["commits went back 1 times: 1 of partition 0 was committed behind 2"]


def test_only_what_kafka_tells_as_well_is_excused() -> None:
    told, with_kafka = Wrong("the reader was told: EOF", "EOF"), Wrong("...", "read tcp: connection reset by peer")
    lost = Wrong("1 acknowledged and lost: 2")
    assert kinds.is_as_kafka([told], [with_kafka])
    assert not kinds.is_as_kafka([told], [])
    assert not kinds.is_as_kafka([told, lost], [with_kafka, lost])
    assert not kinds.is_as_kafka([Wrong("...", "UNKNOWN_TOPIC_ID")], [with_kafka])
    assert kinds.kind("broker 17 is away") == kinds.kind("broker 4 is away")
    assert Outcome((told,), (with_kafka,)).word == "as Kafka"
    assert Outcome((told, lost), (with_kafka,)).word == Outcome((told,), ()).word == "NO"


def test_what_was_only_told_is_no_failure_where_nothing_was_compared_and_what_is_lost_is() -> None:
    told, lost = Wrong("the reader was told: EOF", "EOF"), Wrong("1 acknowledged and lost: 2")
    quick = Outcome((told,))
    assert quick.word == "told, not compared"
    assert quick.is_fine
    assert not Outcome((told, lost)).is_fine
    assert not Outcome((lost,)).is_fine
