"""What an open found is said: by `recovery()`, and by `walrus log` with its exit code."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walrus_core
from typer.testing import CliRunner
from walrus_core.commands import app

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}
ENTRIES = [b"entry %d " % number * 50 for number in range(5)]


def killed(directory: Path) -> None:
    """A store whose process was killed."""
    program = f"""
import os, walrus_core
walrus = walrus_core.Walrus.open({str(directory)!r}, block_bytes=64 << 10, blocks_per_file=4)
for number in range(5):
    walrus.append("t", b"entry %d " % number * 50)
assert walrus.read_next("t")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def tear_the_tail(directory: Path) -> None:
    """The last append of a killed process is damaged, and nothing proves that it was durable."""
    killed(directory)
    for file in directory.glob("*.wal"):
        data = file.read_bytes()
        at = data.find(ENTRIES[-1])
        if at >= 0:
            file.write_bytes(data[:at] + b"!" + data[at + 1 :])


def lose_the_end(directory: Path) -> None:
    killed(directory)
    (journal,) = directory.glob("journal-*")
    with journal.open("r+b") as file:
        file.truncate(128)


def add_a_strange_block(directory: Path) -> None:
    """A block whose header was torn when its log was about to get it: nobody misses it."""
    with walrus_core.Walrus.open(directory, **SMALL) as walrus:  # type: ignore[arg-type]
        walrus.append_many("t", ENTRIES)
    file = min(directory.glob("*.wal"))
    block = bytearray(file.read_bytes())
    free = 3 * SMALL["block_bytes"]
    block[free : free + 4096] = b"\x5a" * 4096
    file.write_bytes(block)


def run(command: str, directory: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, [command, str(directory), "--output", "json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("harm", "field"),
    [(tear_the_tail, "torn_tails"), (lose_the_end, "lost_end"), (add_a_strange_block, "unknown_blocks")],
)
def test_what_an_open_cuts_or_moves_aside_is_told(tmp_path: Path, harm: Callable[[Path], None], field: str) -> None:
    harm(tmp_path)
    for command in ("inspect", "verify"):
        code, seen = run(command, tmp_path)
        assert code == 1, f"{command} says so before an open does it"
        assert seen["damaged"]
    with walrus_core.Walrus.open(tmp_path) as walrus:
        found = walrus.recovery()
        assert found["lost_something"]
        assert found[field]
        others = {"torn_tails", "lost_end", "unknown_blocks", "damaged", "moved_cursors"} - {field}
        assert not any(found[other] for other in others), found
        kept = [data for _, data in walrus.read_batch("t", start_offset=0)]
        assert kept == (ENTRIES[:-1] if field == "torn_tails" else ENTRIES)
    for command in ("inspect", "verify"):
        assert run(command, tmp_path)[0] == 0, "what was done is done"
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert not walrus.recovery()["lost_something"]


def test_a_cursor_that_may_have_been_further_refuses_until_it_is_sought(tmp_path: Path) -> None:
    lose_the_end(tmp_path)
    with walrus_core.Walrus.open(tmp_path) as walrus:
        assert walrus.recovery()["lost_end"]["logs_found"]
        with pytest.raises(walrus_core.CorruptionError) as raised:
            walrus.read_next("t")
        assert (raised.value.reason, raised.value.facts) == ("DoubtedCursor", {"name": "default", "at": 0})
        walrus.cursor("t", "default").seek(1)
        assert walrus.read_next("t") == (1, ENTRIES[1])
