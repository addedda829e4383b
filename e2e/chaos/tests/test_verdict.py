"""The verdict finds what it must find: a check that cannot fail proves nothing."""

from chaos.verdict import judge
from harness.records import value_of

LOG = [(offset, value_of(1, offset)) for offset in range(4)]
SEEN = [hash(value) for _, value in LOG]


def test_a_log_that_holds_what_was_acknowledged_and_seen_is_right() -> None:
    assert judge(LOG, acked={1: 4}, seen=SEEN)
    assert judge(LOG, acked={1: 2}, seen=SEEN[:3])


def test_a_record_that_was_acknowledged_and_is_gone_is_found() -> None:
    verdict = judge(LOG[:3], acked={1: 4}, seen=[])
    assert not verdict
    assert "1 lost: [(1, 3)]" in str(verdict)


def test_a_record_that_was_seen_and_is_gone_is_found_though_nobody_acknowledged_it() -> None:
    verdict = judge(LOG[:3], acked={1: 3}, seen=SEEN)
    assert not verdict
    assert verdict.unlike == (3,)


def test_a_record_that_was_seen_otherwise_is_found() -> None:
    verdict = judge(LOG, acked={1: 4}, seen=[SEEN[0], SEEN[2]])
    assert not verdict
    assert verdict.unlike == (1,)


def test_a_record_of_an_unknown_producer_does_not_hide_a_lost_one() -> None:
    assert not judge([(0, value_of(9, 0))], acked={1: 1}, seen=[])
