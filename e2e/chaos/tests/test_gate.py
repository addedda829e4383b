"""Clients pause at a gate, and nothing of theirs is under way while it is closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import pytest
from chaos.gate import Gate
from harness.waiting import wait_until

TIMEOUT_S = 10.0


class Walker:
    """A client that takes one step each time that it is let."""

    def __init__(self, gate: Gate) -> None:
        self.over, self.let, self.begun = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)
        self.is_under_way = False
        self._gate = gate
        self._thread = threading.Thread(target=self._live, daemon=True)

    def _live(self) -> None:
        with self._gate.entered():
            while not self.over.is_set():
                self._gate.passed(self.over)
                self.is_under_way = True
                self.begun.release()
                self.let.acquire()
                self.is_under_way = False

    @contextmanager
    def walking(self) -> Iterator[Self]:
        """Has begun a step and is not let end it."""
        self._thread.start()
        try:
            assert self.begun.acquire(timeout=TIMEOUT_S)
            yield self
        finally:
            self.over.set()
            self.let.release()
            self._thread.join(TIMEOUT_S)
            assert not self._thread.is_alive()


def test_whoever_closes_it_waits_for_who_is_under_way_and_who_waited_goes_on() -> None:
    gate = Gate()
    with Walker(gate).walking() as walker:
        with pytest.raises(TimeoutError, match="1 clients to pause"), gate.closed(timeout_s=0.01):
            pass
        walker.let.release()
        assert walker.begun.acquire(timeout=TIMEOUT_S), "nobody kept it closed"
        letting = threading.Thread(target=_let_once_closed, args=(gate, walker))
        letting.start()
        with gate.closed(TIMEOUT_S):
            assert not walker.is_under_way
            assert not walker.begun.acquire(blocking=False)
        letting.join()
        assert walker.begun.acquire(timeout=TIMEOUT_S)


def test_a_client_that_is_told_to_end_does_not_wait() -> None:
    gate, over = Gate(), threading.Event()
    over.set()
    with gate.closed(TIMEOUT_S):
        walker = threading.Thread(target=_pass, args=(gate, over), daemon=True)
        walker.start()
        walker.join(TIMEOUT_S)
        assert not walker.is_alive()


def test_who_has_left_is_not_waited_for() -> None:
    gate = Gate()
    _pass(gate, threading.Event())
    with gate.closed(TIMEOUT_S):
        pass


def _let_once_closed(gate: Gate, walker: Walker) -> None:
    wait_until("the gate to be closed", lambda: not gate.is_open, timeout_s=TIMEOUT_S)
    walker.let.release()


def _pass(gate: Gate, over: threading.Event) -> None:
    with gate.entered():
        gate.passed(over)
