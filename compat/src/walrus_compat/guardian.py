"""A process above the runner, which ends whatever the runner has started when the runner ends, however that is.

Nodes, brokers and drivers have sessions of their own: a signal for the runner's group reaches none of them, and a
runner that is killed ends nobody. The kernel gives those who lose their parent to the guardian. Linux only.
"""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what `timeout` sends
_SET_CHILD_SUBREAPER = 36  # from prctl(2)


def guarded(run: Callable[[], int]) -> int:
    """Run in a process of its own, and return its exit status, as a shell does. No threads may have been started."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    runner = os.fork()
    if runner == 0:
        # A terminal tells the runner, too: it leaves that to the guardian. Programs that it starts do not inherit this.
        _listen(lambda _number: None)
        return run()
    told: list[int] = []

    def end(number: int) -> None:
        told.append(number)
        with suppress(ProcessLookupError):
            os.kill(runner, signal.SIGKILL)

    _listen(end)
    code = _await_end(runner)
    while orphans := _children():
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)  # nobody else reaps it, so the number is still its own
        for _ in orphans:
            os.waitpid(-1, 0)
    if told:
        return 128 + told[0]
    return code if code >= 0 else 128 - code


def _listen(heard: Callable[[int], None]) -> None:
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: heard(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _await_end(runner: int) -> int:
    """Wait for its end, and take in those that lost their parent before; return how it ended, negative for a signal."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == runner:
            return os.waitstatus_to_exitcode(status)


def _children() -> list[int]:
    return [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
