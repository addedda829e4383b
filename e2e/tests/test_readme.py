"""What the README says works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from walrus_client.dev import open_cluster

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def console_steps() -> list[tuple[str, str]]:
    """Commands of the console block, each with the output that stands below it ("": not shown)."""
    (block,) = blocks("console")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert len(steps) == block.count("$ ")
    return steps


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


def run(command: list[str] | str, home: Path) -> str:
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
    shell = isinstance(command, str)
    done = subprocess.run(command, shell=shell, cwd=home, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_commands_and_all_programs_of_the_readme_work(home: Path) -> None:
    steps = console_steps()
    assert steps[0][0] == "walrus dev up"
    assert steps[-1][0] == "walrus dev down"
    try:
        for command, expected in steps[:-1]:
            output = run(command, home)
            assert not expected or output == expected, command
        ports = open_cluster(home / ".walrus/dev").nodes[0].ports
        told = {"127.0.0.1:9090": f"127.0.0.1:{ports.grpc}", "127.0.0.1:9092": f"127.0.0.1:{ports.kafka}"}
        programs = blocks("python")
        for port, here in told.items():
            programs = [program.replace(port, here) for program in programs]
        from_python, from_kafka, from_spark = programs
        assert "999 b'order 999'" in run([sys.executable, "-c", from_python], home)
        assert "payment 500 is next of 1000" in run([sys.executable, "-c", from_kafka], home)
        assert "order 4" in run([sys.executable, "-c", from_spark], home)
    finally:
        run(steps[-1][0], home)


def test_every_path_and_make_target_that_the_readme_names_is_there() -> None:
    text = README.read_text()
    root = README.parent
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (root / path).exists(), path
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", text)) <= targets
