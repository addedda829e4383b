"""What a runner has started ends with it: brokers that are left behind take the next run's memory and ports."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A runner that starts a program in a session of its own, which starts one more. It tells the ids of all three.
RUNNER = """
import os, subprocess, sys, threading
from walrus_compat.guardian import guarded

def run():
    script = "sleep 1000 & echo $!; wait"
    child = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True)
    print(os.getpid(), child.pid, child.stdout.readline().strip(), flush=True)
    if sys.argv[1] == "end":
        return 3
    thread = threading.Thread(target=child.wait)
    thread.start()
    thread.join()
    return 0

sys.exit(guarded(run))
"""


def start(what: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """A guardian; and its runner, what that has started, and what this one has."""
    guardian = subprocess.Popen([sys.executable, "-c", RUNNER, what], stdout=subprocess.PIPE, text=True)
    assert guardian.stdout is not None
    return guardian, [int(pid) for pid in guardian.stdout.readline().split()]


def left(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_runner_and_all_that_it_has_started(number: signal.Signals) -> None:
    guardian, pids = start("wait")
    guardian.send_signal(number)
    assert guardian.wait() == 128 + number
    assert not left(pids)


def test_what_a_killed_runner_has_started_does_not_outlive_it() -> None:
    guardian, pids = start("wait")
    os.kill(pids[0], signal.SIGKILL)
    assert guardian.wait() == 128 + signal.SIGKILL
    assert not left(pids)


def test_a_runner_that_ends_leaves_nothing_behind_and_its_status_is_returned() -> None:
    guardian, pids = start("end")
    assert guardian.wait() == 3
    assert not left(pids)
