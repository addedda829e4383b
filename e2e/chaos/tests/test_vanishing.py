"""What may be gone of topics that keep little is told from what may not."""

from chaos.vanishing import AGAIN_RECORDS, KEPT_S, PRODUCER, Vanishing
from harness.records import value_of


def state(*sent_s: float) -> Vanishing:
    return Vanishing(sent_s=list(sent_s), read=1)


def test_a_record_may_be_gone_once_it_is_older_than_the_topic_keeps_it() -> None:
    found = state(10.0, 11.0, 12.0)
    found.check_start(0, 2, now_s=11.0 + KEPT_S)
    assert found
    assert found.gone == 2


def test_a_record_that_is_gone_too_early_or_was_never_sent_is_a_broken_promise() -> None:
    early = state(10.0, 11.0)
    early.check_start(0, 2, now_s=10.9 + KEPT_S)
    assert not early
    unsent = state(10.0)
    unsent.check_start(0, 2, now_s=1_000.0)
    assert not unsent
    refused = state(10.0)
    refused.check_start(0, 0, now_s=1_000.0)
    assert not refused


def test_a_record_has_the_offset_of_its_number() -> None:
    found = Vanishing()
    found.check_record(7, 7, value_of(PRODUCER, 7))
    assert found
    found.check_record(8, 8, value_of(PRODUCER, 7))
    assert not found


def test_a_topic_that_was_made_again_has_its_own_records_and_all_of_them() -> None:
    def values(number: int) -> list[bytes]:
        return [value_of(PRODUCER + number, sequence) for sequence in range(AGAIN_RECORDS)]

    found = state()
    found.check_again(3, values(3))
    assert found
    found.check_again(4, values(3))
    found.check_again(4, values(4)[:-1])
    assert len(found.false) == 2


def test_a_run_in_which_nothing_was_seen_proves_nothing() -> None:
    assert not Vanishing()
    assert not Vanishing(read=1, is_judged_again=True)
    assert Vanishing(read=1, is_judged_again=True, made=1)
