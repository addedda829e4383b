"""What is expected and does not come is given up, and only that."""

import threading

import pytest
from walrus_client import silence
from walrus_client.silence import SilenceWatch


@pytest.fixture
def watch():
    return SilenceWatch()


def test_what_is_not_heard_in_time_is_given_up_once(watch):
    given_up = threading.Semaphore(0)
    watch.expect("answer", within_s=0.01, give_up=given_up.release)
    assert given_up.acquire(timeout=60)
    assert not watch.heard("answer")
    assert not given_up.acquire(blocking=False)


def test_what_is_heard_is_not_given_up_while_another_is(watch):
    order = []
    another = threading.Event()
    watch.expect("heard", within_s=60, give_up=lambda: order.append("heard"))
    watch.expect("silent", within_s=0.05, give_up=lambda: (order.append("silent"), another.set()))
    assert watch.heard("heard")
    assert another.wait(60)
    assert order == ["silent"]


def test_what_is_due_earlier_is_not_kept_waiting_by_what_is_due_later(watch):
    given_up = threading.Event()
    watch.expect("late", within_s=3600, give_up=lambda: None)
    watch.expect("early", within_s=0.01, give_up=given_up.set)
    assert given_up.wait(60)
    assert watch.heard("late")


def test_what_is_hastened_is_given_up_sooner_and_never_later(watch):
    given_up = threading.Semaphore(0)
    watch.expect("answer", within_s=3600, give_up=given_up.release)
    watch.hasten("answer", within_s=0.01)
    watch.hasten("answer", within_s=3600)
    watch.hasten("another", within_s=0)
    assert given_up.acquire(timeout=60)


def test_the_thread_ends_when_nothing_is_expected_and_another_one_begins(watch, monkeypatch):
    monkeypatch.setattr(silence, "LINGER_S", 0.01)
    for _ in range(20):
        given_up = threading.Event()
        watch.expect("answer", within_s=0.001, give_up=given_up.set)
        thread = watch._thread
        assert given_up.wait(60)
        if thread is not None:
            thread.join(60)
            assert not thread.is_alive()
