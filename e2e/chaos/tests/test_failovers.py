"""Failovers are counted over restarts, and those from before the first look are nobody's fault."""

from chaos.failovers import Failovers


def test_what_was_there_at_the_first_look_does_not_count_and_every_later_one_does() -> None:
    found = Failovers()
    found.note({1: {"leader_silent": 4}, 2: {}})
    found.note({1: {"leader_silent": 4}, 2: {}})
    assert found
    found.note({1: {"leader_silent": 5}, 2: {"leader_restarted": 2}})
    assert not found
    assert str(found) == "failed over: {'leader_silent': 1, 'leader_restarted': 2}"


def test_the_counters_of_another_process_begin_at_nothing() -> None:
    found = Failovers()
    found.note({1: {"leader_silent": 4}})
    found.note({1: {}})
    assert found
    found.note({1: {"leader_silent": 1}})
    assert found.by_cause.total() == 1


def test_a_node_that_is_not_there_is_counted_on_when_it_is_back() -> None:
    found = Failovers()
    found.note({1: {}, 2: {"adopted": 1}})
    found.note({1: {}})
    found.note({1: {}, 2: {"adopted": 2}})
    assert found.by_cause == {"adopted": 1}
