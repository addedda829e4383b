import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "stuck.py"

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE)
child.wait()
"""


def test_the_process_that_everybody_waits_for_is_told_with_what_it_waits_for():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout.readline() == "up\n"
        told = subprocess.run(
            [sys.executable, str(SCRIPT), str(parent.pid)], capture_output=True, text=True, check=True
        ).stdout
        named, *threads = told.splitlines()
        child, _, command = named.partition(": ")
        assert "input()" in command
        assert threads
        assert all(line.startswith("  1 x python") for line in threads)
        subprocess.run(["kill", child], check=True)


def test_a_process_that_has_ended_is_left_out():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    told = subprocess.run([sys.executable, str(SCRIPT), str(ended.pid)], capture_output=True, text=True, check=True)
    assert told.stdout == ""
