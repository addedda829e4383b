"""Suite `storage`: the engine in a process of its own, without a network, on each of its backends."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from walrus_bench import programs
from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites import Prepared, Settings, limits

CASES = ("durable_1_caller", "nosync_1_caller", "durable_batch_2000")
LIMITS = ("durable_4k", "durable_bandwidth", "group_commit_8", "record_copy")
WALRUS: Mapping[str, Sequence[str]] = {"walrus": ("mmap", "direct", "io_uring")}
QUIET = {"WALRUS_QUIET": "1"}  # without it walrus_rust prints with every append
PEERS: Mapping[str, Sequence[str]] = {"walrus_rust": ("fd", "mmap")}


@contextmanager
def engine(settings: Settings) -> Iterator[Prepared]:
    """Sets up the engines and the limits they are held against."""
    program = programs.build("walrus-bench-engine", features="peers" if settings.peers else "")
    machine = limits.prepare(settings, LIMITS)
    systems = {**WALRUS, **(PEERS if settings.peers else {})}
    subjects = [
        Subject(case, system, backend, partial(_measure, program, case, system, backend, settings))
        for case in CASES
        for system, backends in systems.items()
        for backend in backends
    ]
    yield Prepared([*machine.subjects, *subjects], notes=machine.notes)


def _measure(program: Path, case: str, system: str, backend: str, settings: Settings) -> Sample:
    """Runs once in a fresh directory: written, reopened, read back and compared, then the sample."""
    data_dir = settings.data_dir / "engine"
    subject = ("--system", system, "--backend", backend, "--dir", data_dir)
    try:
        return programs.run(program, case, *subject, seconds=settings.seconds, environment=QUIET)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
        os.sync()  # or the next sample pays for freeing a gigabyte
