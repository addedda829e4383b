"""Suite `storage`: the engine in a process of its own, without a network, on each of its backends."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from walrus_bench import programs
from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites import Prepared, Settings, limits

CASES = ("durable_1_caller", "nosync_1_caller", "durable_batch_2000")
BACKENDS = ("mmap", "direct")
LIMITS = ("durable_4k", "durable_bandwidth", "group_commit_8", "record_copy")


@contextmanager
def engine(settings: Settings) -> Iterator[Prepared]:
    """Set up the engine and the limits it is held against."""
    program = programs.build("walrus-bench-engine")
    machine = limits.prepare(settings, LIMITS)
    subjects = [
        Subject(case, "walrus", backend, partial(_measure, program, case, backend, settings))
        for case in CASES
        for backend in BACKENDS
    ]
    yield Prepared([*machine.subjects, *subjects], notes=machine.notes)


def _measure(program: Path, case: str, backend: str, settings: Settings) -> Sample:
    """Run once in a fresh directory: written, reopened, read back and compared, then the sample."""
    data_dir = settings.data_dir / "engine"
    shutil.rmtree(data_dir, ignore_errors=True)
    try:
        return programs.run(program, case, "--backend", backend, "--dir", data_dir, seconds=settings.seconds)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
