"""Clocks of nodes that can be wrong: a library of our own that is loaded before theirs (`clock.c`)."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
_WRONG = struct.Struct("<qq")  # nanoseconds: wall clock, the clock that counts sleep


def missing() -> str:
    """Why no clock can be made wrong here; "" if it can."""
    return "" if shutil.which("cc") else "cc not found: install a C compiler"


class Clocks:
    """One clock for each node, right until it is set."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        self._wall_ns: dict[int, int] = {}
        self._asleep_ns: dict[int, int] = {}

    def environment(self, node: int) -> dict[str, str]:
        """What a process is started with."""
        if not self._path(node).exists():
            self._write(node)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._path(node))}

    def shift(self, node: int, *, wall_s: float) -> None:
        """From now on the wall clock is wrong by so much; 0 makes it right."""
        self._wall_ns[node] = int(wall_s * 1e9)
        self._write(node)

    def sleep(self, node: int, *, seconds: float) -> None:
        """The machine slept, and its wall clock was set right when it woke up."""
        self._asleep_ns[node] = self._asleep_ns.get(node, 0) + int(seconds * 1e9)
        self._write(node)

    def _write(self, node: int) -> None:
        wrong = _WRONG.pack(self._wall_ns.get(node, 0), self._asleep_ns.get(node, 0))
        file = os.open(self._path(node), os.O_RDWR | os.O_CREAT, 0o644)  # in place: it is mapped
        try:
            os.pwrite(file, wrong, 0)
        finally:
            os.close(file)

    def _path(self, node: int) -> Path:
        return self._directory / f"clock-{node}"
