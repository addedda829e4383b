"""Brokers go by the time that a majority of their clocks has reached."""

from chaos.ages import MARGIN_S, TOLD_S, Clocks


def test_with_right_clocks_something_is_as_old_as_it_is() -> None:
    clocks = Clocks(3)
    assert not clocks.may_have_passed(3.0, since_s=10.0, now_s=13.0 - 2 * MARGIN_S)
    assert clocks.may_have_passed(3.0, since_s=10.0, now_s=13.0)


def test_one_clock_that_is_ahead_makes_nothing_older() -> None:
    clocks = Clocks(3)
    clocks.go_ahead([2], now_s=10.0)
    clocks.go_ahead([2], now_s=10.5)
    assert not clocks.may_have_passed(3.0, since_s=9.0, now_s=11.0)


def test_a_majority_that_is_ahead_makes_old_what_is_there_until_it_is_told_that_it_was_wrong() -> None:
    clocks = Clocks(3)
    clocks.go_ahead([1, 2], now_s=10.0)
    clocks.are_right(now_s=20.0)
    assert clocks.may_have_passed(3.0, since_s=9.0, now_s=10.0)
    assert clocks.may_have_passed(3.0, since_s=20.0 + TOLD_S, now_s=21.0 + TOLD_S)
    assert not clocks.may_have_passed(3.0, since_s=8.0, now_s=9.9)
    assert not clocks.may_have_passed(3.0, since_s=21.0 + TOLD_S, now_s=22.0 + TOLD_S)


def test_clocks_that_are_ahead_one_after_the_other_may_be_a_majority_to_those_who_were_not_told_yet() -> None:
    clocks = Clocks(3)
    clocks.go_ahead([1], now_s=10.0)
    clocks.are_right(now_s=12.0)
    clocks.go_ahead([2], now_s=11.0 + TOLD_S)
    assert clocks.may_have_passed(3.0, since_s=11.0 + TOLD_S, now_s=11.5 + TOLD_S)
    assert not clocks.may_have_passed(3.0, since_s=12.5 + TOLD_S, now_s=13.0 + TOLD_S)
