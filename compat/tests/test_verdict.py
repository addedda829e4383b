"""What the runner calls wrong: a verdict that lets losses pass would make the whole table worthless."""

from walrus_compat import expected, verdict
from walrus_compat.report import Outcome


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


def test_what_kafka_shows_as_well_excuses_nothing_else() -> None:
    told = "plain: the reader was told: EOF"
    assert expected.reason("sarama", "rolling restart", (told,))
    assert expected.reason("sarama", "rolling restart", (told, "plain: 1 acknowledged and lost: 2")) is None
    assert expected.reason("franz-go", "rolling restart", (told,)) is None
    assert not Outcome((told,)).is_fine
    assert Outcome((told,), as_kafka="so it is").word == "as Kafka"
