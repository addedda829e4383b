"""What may be gone of a topic that keeps its records for seconds is told from what may not."""

from chaos.ages import MARGIN_S, Clocks
from chaos.expiring import KEPT_S, PRODUCER, Expiring
from harness.records import value_of


def state(*sent_s: float) -> Expiring:
    return Expiring(Clocks(3), sent_s=list(sent_s), read=1)


def test_a_record_may_be_gone_once_it_is_older_than_the_topic_keeps_it() -> None:
    found = state(10.0, 11.0, 12.0)
    found.check_gone(0, 2, now_s=11.0 + KEPT_S)
    assert found
    assert found.gone == 2


def test_a_record_that_is_gone_too_early_or_was_never_sent_is_a_broken_promise() -> None:
    early = state(10.0, 11.0)
    early.check_gone(0, 2, now_s=11.0 + KEPT_S - 2 * MARGIN_S)
    assert not early
    unsent = state(10.0)
    unsent.check_gone(0, 2, now_s=1_000.0)
    assert not unsent
    refused = state(10.0)
    refused.check_gone(0, 0, now_s=1_000.0)
    assert not refused


def test_a_record_may_be_gone_at_once_when_a_majority_of_the_clocks_is_ahead() -> None:
    found = state(10.0, 11.0)
    found.clocks.go_ahead([1, 2], now_s=11.0)
    found.check_gone(0, 2, now_s=11.1)
    assert found


def test_a_log_that_begins_earlier_than_it_did_is_found() -> None:
    found = state(10.0, 11.0, 12.0)
    found.check_start("node", 2, known=0, now_s=100.0)
    found.check_start("node", 2, known=2, now_s=100.0)
    assert found
    found.check_start("node", 1, known=2, now_s=100.0)
    assert found.false == ["node: the log begins at 1, after it began at 2"]


def test_a_log_that_is_said_to_begin_too_late_is_found_before_anybody_reads() -> None:
    found = state(10.0, 11.0)
    found.check_start("node", 1, known=0, now_s=11.0)
    assert not found


def test_a_record_has_the_offset_of_its_number_and_its_own_bytes() -> None:
    found = Expiring(Clocks(3))
    found.check_record(7, 7, value_of(PRODUCER, 7))
    assert found
    found.check_record(8, 8, value_of(PRODUCER, 7))
    found.check_record(9, 10, value_of(PRODUCER, 10))
    found.check_record(10, 10, value_of(PRODUCER, 10, random=1))
    assert len(found.false) == 3


def test_a_run_in_which_nothing_was_read_proves_nothing() -> None:
    assert not Expiring(Clocks(3))
