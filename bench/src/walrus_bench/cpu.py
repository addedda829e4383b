"""How much CPU others used while we measured.

A durable write that takes 73 us alone takes milliseconds beside a compiler, so a sample is worth nothing
without this. Others are: all user and system time of the machine, minus our process tree, minus the kernel's
own threads, which mostly write back what we wrote.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

KTHREADD_PID = 2
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds since boot, at one moment."""

    at_s: float
    machine_s: float
    own_s: float
    kernel_s: float


@dataclass(frozen=True)
class Process:
    """One line of /proc: CPU ticks of the process and of the children it has waited for."""

    pid: int
    parent: int
    ticks: int


def others_cores(before: CpuReading, after: CpuReading) -> float:
    """Cores that others kept busy between two readings, never below 0."""
    elapsed = after.at_s - before.at_s
    if elapsed <= 0:
        return 0.0
    machine = after.machine_s - before.machine_s
    ours = (after.own_s - before.own_s) + (after.kernel_s - before.kernel_s)
    return max(0.0, (machine - ours) / elapsed)


def reader(more_roots: Iterable[int] = ()) -> Callable[[], CpuReading]:
    """Makes the function that reads now. Ours are this process, `more_roots`, and all below them."""
    roots = frozenset((os.getpid(), *more_roots))

    def read() -> CpuReading:
        processes = list(_processes())
        return CpuReading(
            at_s=time.monotonic(),
            machine_s=parse_machine_ticks(Path("/proc/stat").read_text()) / TICKS_PER_SECOND,
            own_s=tree_ticks(processes, roots) / TICKS_PER_SECOND,
            kernel_s=tree_ticks(processes, frozenset((KTHREADD_PID,))) / TICKS_PER_SECOND,
        )

    return read


def process_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds used by these processes and all below them. Raises ProcessLookupError when one is gone."""
    processes = list(_processes())
    alive = {process.pid for process in processes}
    roots = frozenset(pids)
    if gone := roots - alive:
        raise ProcessLookupError(f"processes that should be running are gone: {sorted(gone)}")
    return tree_ticks(processes, roots) / TICKS_PER_SECOND


def tree_ticks(processes: Iterable[Process], roots: frozenset[int]) -> int:
    """Ticks of the processes `roots` and of all their descendants."""
    by_pid = {process.pid: process for process in processes}

    def belongs(process: Process | None) -> bool:
        while process is not None:
            if process.pid in roots:
                return True
            process = by_pid.get(process.parent)
        return False

    return sum(process.ticks for process in by_pid.values() if belongs(process))


def parse_machine_ticks(stat: str) -> int:
    """User, nice and system ticks of all cores from /proc/stat. No interrupts: we cause most of them."""
    for line in stat.splitlines():
        if line.startswith("cpu "):
            user, nice, system = line.split()[1:4]
            return int(user) + int(nice) + int(system)
    raise ValueError("/proc/stat has no line 'cpu'")


def parse_process(stat: str) -> Process:
    """One /proc/<pid>/stat. The name may hold spaces and parentheses, so fields count from the last ')'."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return Process(
        pid=int(head.split(" ", 1)[0]),
        parent=int(fields[1]),
        ticks=sum(int(ticks) for ticks in fields[11:15]),
    )


def _processes() -> Iterable[Process]:
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            yield parse_process((directory / "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
