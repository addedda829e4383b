"""Processes that outlive the one that started them: told apart from a later one with the same pid by when they began.

Linux only, as it reads /proc.
"""

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started once. `began` is the boot it belongs to and its start in clock ticks after it."""

    pid: int
    began: str

    def is_running(self) -> bool:
        """Whether it still runs; a dead one that waits for its parent does not."""
        return _began(self.pid) == self.began

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; True if it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if _began(self.pid, dead_too=True) != self.began:
                return True
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(max(timeout_s, 0) * 1000))
        finally:
            os.close(handle)

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, if it has ended, is our own child, and nobody asked before."""
        if self.is_running() or _began(self.pid, dead_too=True) != self.began:
            return None
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        return None

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if it does not run any more. A process that got its pid later is never hit."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The handle stands for whoever had the pid when it was opened; only then is the look worth something.
            if not self.is_running():
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def memory_bytes(self) -> int | None:
        """Return its resident memory; None if it does not run."""
        if not self.is_running():
            return None
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")


def start_process(arguments: Sequence[str], *, log_file: Path, environment: Mapping[str, str]) -> Process:
    """Start a process of its own session that appends its output to *log_file* and outlives this one."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        pid = os.posix_spawn(
            arguments[0],
            list(arguments),
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(log)
    # It is our child: even if it is dead already, its entry stays until it is reaped.
    began = _began(pid, dead_too=True)
    assert began is not None, "a child that was not waited for is in /proc"
    return Process(pid, began)


def _is_last_thread(pid: int) -> bool:
    """Whether nothing of a process is left but its first thread; until then it has its files and ports."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1  # noqa: PTH208 - a count of names needs no paths
    except OSError:
        return True


def _began(pid: int, *, dead_too: bool = False) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    state, start_ticks = fields[0], fields[19]
    if state in "ZX" and not dead_too and _is_last_thread(pid):
        return None
    return f"{boot}/{start_ticks}"
