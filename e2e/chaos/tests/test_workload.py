"""Records of the topic with a cursor come in bursts: its reader comes to their end, and is told so."""

from chaos.workload import BURST_S, CURSOR_BURST, CURSOR_LEAD, Burst, Shape, Workload, has_heard_the_end


def test_a_burst_follows_when_the_reader_was_told_that_there_is_no_more() -> None:
    workload = Workload(Shape(), taken=CURSOR_BURST)
    burst = Burst(workload)
    assert burst.goes_on(0, now_s=10.0)
    assert burst.goes_on(CURSOR_BURST, now_s=20.0)
    assert not burst.goes_on(2 * CURSOR_BURST, now_s=20.1)
    workload.emptiness.check("node", known=0, handed=set(), now_s=20.2)
    assert burst.goes_on(2 * CURSOR_BURST, now_s=20.2)


def test_a_reader_that_is_told_nothing_is_not_waited_for_but_not_left_far_behind() -> None:
    burst = Burst(Workload(Shape()))
    assert burst.goes_on(CURSOR_BURST, now_s=20.0)
    assert not burst.goes_on(2 * CURSOR_BURST, now_s=20.0)
    assert burst.goes_on(2 * CURSOR_BURST, now_s=20.0 + BURST_S)
    assert not burst.goes_on(CURSOR_LEAD + 1, now_s=100.0)


def test_the_reader_goes_on_until_it_has_everything_and_was_told_so() -> None:
    """A reader that never caught up ended with its last record: nothing had claimed EMPTY, and the run had failed."""
    workload = Workload(Shape())
    workload.acked[workload.shape.producers] = 2
    workload.handed |= {0, 1}
    assert not has_heard_the_end(workload)
    workload.emptiness.check("node", known=2, handed=workload.handed, now_s=1.0)
    assert has_heard_the_end(workload)
    workload.acked[workload.shape.producers] = 3
    assert not has_heard_the_end(workload)


def test_a_reader_that_was_told_something_false_does_not_wait_for_something_true() -> None:
    workload = Workload(Shape())
    workload.acked[workload.shape.producers] = 1
    workload.emptiness.check("node", known=1, handed=set(), now_s=1.0)
    workload.handed.add(0)
    assert has_heard_the_end(workload)
