"""How soon a cluster is looked at again."""

from datetime import UTC, datetime, timedelta

import pytest
from walrus_operator.objects import Key, Ref
from walrus_operator.plan.actions import Done, Gate, Plan, Prune, Wait
from walrus_operator.plan.patience import IDLE_S, Patience

KEY = Key("shop", "orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = (Plan(), Done())


def closed(*gates):
    return Plan(waits=tuple(Wait(gate, "why") for gate in gates)), Done()


def doing(name):
    return Plan(), Done((Prune(Ref("ConfigMap", "shop", name), "u"),))


def looks(*passes):
    patience = Patience()
    return [patience.after(KEY, *one, NOW) for one in passes]


def test_a_gate_that_stays_closed_is_looked_at_ever_more_rarely():
    assert looks(*[closed(Gate.POD_PENDING)] * 8) == [1, 2, 4, 8, 16, 32, 40, 40]
    assert looks(*[closed(Gate.SHRINK_REFUSED)] * 5) == [10, 20, 40, 60, 60]


def test_the_end_of_a_drain_is_seen_within_seconds_however_long_it_takes():
    """The pauses grew as those of other gates do, and a broker that was drained waited up to 16 s for its next step."""
    assert looks(*[closed(Gate.DRAINING)] * 6) == [1, 2, 4, 5, 5, 5]


def test_gates_that_open_and_close_in_turn_are_not_news():
    """Each change began anew: a broker that came and went kept the operator awake."""
    in_turn = [closed(Gate.POD_PENDING), closed(Gate.UNKNOWN_BROKER), closed(Gate.POD_PENDING, Gate.UNKNOWN_BROKER)]
    assert looks(*in_turn * 3)[3:] == [4, 8, 16, 32, 40, 40]


def test_a_gate_that_was_not_closed_since_something_was_done_is_looked_at_soon():
    assert looks(closed(Gate.POD_PENDING), closed(Gate.POD_PENDING), closed(Gate.NOT_CAUGHT_UP)) == [1, 2, 1]
    assert looks(closed(Gate.POD_PENDING), closed(Gate.POD_PENDING), doing("a"), closed(Gate.POD_PENDING)) == [
        *(1, 2),
        *(0.2, 1),
    ]


def test_what_is_done_again_in_each_pass_is_done_ever_more_rarely():
    """Someone undoes at once what is done; that kept five passes a second going. A roll is none of that."""
    assert looks(*[doing("a")] * 9) == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 40])
    assert looks(doing("a"), doing("b"), doing("c")) == [0.2] * 3


def test_a_cluster_that_only_lacks_copies_is_looked_at_soon_and_then_ever_more_rarely():
    """Nobody but the brokers knows when they are made: it took up to 20 s until `Replicated` was told."""
    patience = Patience()
    waited = [patience.after(KEY, *NOTHING, NOW, copying=True) for _ in range(7)]
    assert waited == [1, 2, 4, 8, 16, IDLE_S, IDLE_S]
    assert patience.after(KEY, *NOTHING, NOW) == IDLE_S
    assert patience.after(KEY, *NOTHING, NOW, copying=True) == 1
    assert patience.after(KEY, *closed(Gate.POD_PENDING), NOW, copying=True) == 1


def test_a_cluster_that_is_as_it_shall_be_is_looked_at_now_and_then():
    assert looks(closed(Gate.POD_PENDING), NOTHING, NOTHING, closed(Gate.POD_PENDING)) == [
        1,
        IDLE_S,
        IDLE_S,
        1,
    ]


def test_a_gate_that_opens_at_a_certain_time_is_looked_at_then():
    opens = Wait(Gate.NODE_LOST, "why", opens=NOW + timedelta(seconds=12))
    patience = Patience()
    passes = [patience.after(KEY, Plan(waits=(opens,)), Done(), NOW) for _ in range(6)]
    assert passes == [1, 2, 4, 8, 12, 12]
