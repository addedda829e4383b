"""Tells where the processes below another one stand: `python3 tools/stuck.py PID`.

CI runs it when a step is about to run out of time, so that a rare standstill leaves more behind than its name. One
line names each process that has started no other; below it stands a line for each of its threads: state, what the
kernel waits for, and the innermost calls where gdb is installed. Threads that stand at the same place share a line.
The program uses the standard library alone, since it runs where nothing may be set up.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CALLS_MAX = 8
COLUMNS_MAX = 240
GDB_SECONDS = 20
FRAME = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<name>[^(]+?) \(", re.MULTILINE)
THREAD = re.compile(r"^Thread \d+ .*?LWP (?P<id>\d+)", re.MULTILINE)


def parents() -> dict[int, int]:
    """Tells the parent of every process that is there."""
    found = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            # The name of a process may hold blanks and brackets, so that fields are counted behind its last bracket.
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # It has ended meanwhile.
    return found


def leaves(root: int) -> list[int]:
    """Lists the processes below `root`, or `root` itself, that have no child."""
    below, found = parents(), {root}
    while more := {child for child, parent in below.items() if parent in found} - found:
        found |= more
    return sorted(found - set(below.values()))


def calls(process: int) -> dict[int, str]:
    """Tells the innermost calls of each thread of a process, by its number; nothing without gdb."""
    command = ["gdb", "-p", str(process), "-batch", "-nx", "-ex", "thread apply all bt 40"]
    try:
        # The command is a list of our own words and a number, and no shell reads it.
        done = subprocess.run(command, capture_output=True, text=True, timeout=GDB_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return {}
    _, *parts = THREAD.split(done.stdout)
    threads = zip(parts[::2], parts[1::2], strict=True)
    return {int(number): " < ".join(FRAME.findall(stack)[:CALLS_MAX]) for number, stack in threads}


def lines(process: int) -> Iterator[str]:
    """Makes the lines that tell where a process stands."""
    folder = PROC / str(process)
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    yield f"{process}: {command}"
    stacks = calls(process)
    places: Counter[str] = Counter()
    for task in (folder / "task").iterdir():
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        name, waits_for = (task / "comm").read_text().strip(), (task / "wchan").read_text().strip()
        places[f"{name}: {state} {waits_for}: {stacks.get(int(task.name), '')}"] += 1
    for place, count in places.items():
        yield f"  {count} x {place}"


def main() -> None:
    """Writes where everything below the process of the first argument stands."""
    for process in leaves(int(sys.argv[1])):
        try:
            for line in lines(process):
                print(line[:COLUMNS_MAX])  # noqa: T201
        except OSError:
            continue  # It has ended meanwhile.


if __name__ == "__main__":
    main()
