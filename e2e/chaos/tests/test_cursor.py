"""The check of a cursor finds what it must find."""

from chaos.cursor import COMMITTED, CONNECTED, judge_cursor


def test_records_in_order_with_commits_are_right() -> None:
    verdict = judge_cursor([0, 1, COMMITTED, 2, COMMITTED])
    assert verdict
    assert (verdict.handed, verdict.commits) == (3, 2)


def test_what_was_not_committed_may_come_again() -> None:
    assert judge_cursor([0, COMMITTED, 1, 2, 1, 2, 3])


def test_a_commit_speaks_for_its_own_connection() -> None:
    assert judge_cursor([0, 1, CONNECTED, 2, COMMITTED, 1, CONNECTED, 3])
    assert not judge_cursor([0, 1, COMMITTED, CONNECTED, 1])


def test_a_committed_record_that_comes_again_is_found() -> None:
    verdict = judge_cursor([0, 1, COMMITTED, 1])
    assert not verdict
    assert verdict.moved_back == [(1, 1)]
    assert "1 committed and handed out again: [(1, 1)]" in str(verdict)


def test_a_record_that_was_left_out_is_found() -> None:
    verdict = judge_cursor([0, 2])
    assert not verdict
    assert verdict.left_out == [1]


def test_a_record_whose_answer_was_lost_may_come_later() -> None:
    assert judge_cursor([0, 2, COMMITTED, 1])


def test_a_cursor_that_does_not_begin_at_the_first_record_is_found() -> None:
    assert judge_cursor([3]).left_out == [0, 1, 2]
