"""Random lives of a store in a process that forks; see `fork_life.py`.

More of them, from another one on: WALRUS_FORK_LIVES=1000 WALRUS_SEED=7.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import walrus_core

LIVES = int(os.environ.get("WALRUS_FORK_LIVES", "20"))
SEED = int(os.environ.get("WALRUS_SEED", "0"))
LONG_S = 120.0


def test_no_fork_costs_the_parent_a_record_or_keeps_the_store_from_opening(tmp_path: Path) -> None:
    for seed in range(SEED, SEED + LIVES):
        directory, facts, errors = (tmp_path / f"{seed}{kind}" for kind in ("", ".facts", ".errors"))
        arguments = [sys.executable, Path(__file__).with_name("fork_life.py"), directory, str(seed), facts]
        living: list[int] = []
        try:
            # To a file: children that outlive the store would keep a pipe open.
            with errors.open("wb") as stderr:
                life = subprocess.run(arguments, check=False, timeout=LONG_S, stderr=stderr)
            said = [line.split(maxsplit=1) for line in facts.read_text().splitlines()]
            living = [int(rest) for what, rest in said if what == "lives"]
            wrong = [rest for what, rest in said if what == "wrong"]
            assert (life.returncode in (0, -signal.SIGKILL), wrong, errors.read_text()) == (True, [], ""), (
                f"seed {seed}"
            )
            check(directory, said, seed)
        finally:
            for child in living:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def check(directory: Path, said: list[list[str]], seed: int) -> None:
    """What was acknowledged is there, and nothing else but what each thread was doing at the end."""
    appended, read = [0, 0], 0
    for what, rest in said:
        if what == "append":
            topic, count = map(int, rest.split())
            appended[topic] = count
        elif what == "read":
            read = int(rest)
    assert walrus_core.verify_store(directory)["damaged"] is False, f"seed {seed}"
    with walrus_core.Walrus.open(directory) as walrus:
        assert set(walrus.topics()) <= {"t0", "t1"}, f"seed {seed}"
        for topic, count in enumerate(appended):
            entries = entries_of(walrus, f"t{topic}")
            assert entries == [b"%d" % entry * 20 for entry in range(len(entries))], f"seed {seed}"
            assert count <= len(entries) <= count + 1, f"seed {seed}"
        assert read <= walrus.cursor("t0", "c").position <= read + 1, f"seed {seed}"


def entries_of(walrus: walrus_core.Walrus, topic: str) -> list[bytes]:
    entries: list[bytes] = []
    while batch := walrus.read_batch(topic, start_offset=len(entries)) if walrus.offsets(topic) else ():
        entries.extend(entry for _, entry in batch)
    return entries
