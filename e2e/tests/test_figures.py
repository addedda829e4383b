"""What the tests on Kubernetes measure, and the limits that it is held against."""

import pytest
from harness.kube import figures as module
from harness.kube.figures import Machine, note, note_pauses, slowness, table, timed
from harness.waiting import wait_until


@pytest.fixture(autouse=True)
def _of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "figures", [])


def test_a_figure_above_its_limit_fails_the_test_and_is_in_the_table_all_the_same() -> None:
    note("a roll", 44.0, "s", limit=45)
    with pytest.raises(AssertionError, match=r"a shrink \| 121 s \| 120 s"):
        note("a shrink", 121.0, "s", limit=120)
    assert table() == [
        "what      measured  limit",
        "a roll    44 s      45 s",
        "a shrink  121 s     120 s",
    ]


def test_a_busy_machine_is_given_more_and_the_table_says_how_much() -> None:
    note("a roll", 60.0, "s", limit=45, slowness=1.5)
    assert table()[1].split() == ["a", "roll", "60", "s", "45", "s,", "here", "67.5"]
    with pytest.raises(AssertionError):
        note("a roll", 68.0, "s", limit=45, slowness=1.5)


def test_a_figure_without_a_limit_is_only_told() -> None:
    with timed("nothing at all"):
        pass
    assert table()[1].startswith("nothing at all")


def test_no_machine_is_given_more_than_twice_as_much() -> None:
    assert 1.0 <= slowness() <= 2.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One that was quiet."""
    monkeypatch.setattr(module, "slowness", lambda: 1.0)
    machine = Machine()
    machine.stop()
    machine.stall_s = 0.001
    return machine


def test_one_append_that_waited_too_long_is_found_among_thousands(machine: Machine) -> None:
    note_pauses("a drain", [0.01] * 5_000, machine)
    with pytest.raises(AssertionError, match="longest: a drain"):
        note_pauses("a drain", [0.01] * 5_000 + [2.1], machine)
    with pytest.raises(AssertionError, match="p99: a drain"):
        note_pauses("a drain", [0.01] * 1_960 + [1.9] * 40, machine)


def test_a_short_story_is_held_against_its_longest_pause_alone(machine: Machine) -> None:
    note_pauses("a roll", [0.01] * 98 + [0.9] * 2, machine)
    assert table()[3].split()[-4:] == ["0.9", "s", "1", "s"]


def test_a_disk_that_stands_still_excuses_a_pause_of_its_own_length_and_is_in_the_table(machine: Machine) -> None:
    machine.stall_s = 0.6
    note_pauses("a roll", [0.01] * 98 + [1.5], machine)
    assert table()[1].split()[-2:] == ["0.6", "s"]
    with pytest.raises(AssertionError, match="longest: a roll"):
        note_pauses("a roll", [0.01] * 98 + [1.7], machine)


def test_no_stall_excuses_more_than_twice_the_limit(machine: Machine) -> None:
    machine.stall_s = 30.0
    assert machine.slowness_for(1.0) == 2.0


def test_the_disk_is_written_while_something_is_done() -> None:
    machine = Machine()
    wait_until("a page is synced", lambda: machine.stall_s > 0.0, timeout_s=60)
    machine.stop()
    assert 1.0 < machine.slowness_for(1.0) <= 2.0
