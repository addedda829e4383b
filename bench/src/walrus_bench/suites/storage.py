"""Suite `storage`: the engine in a process of its own, without a network, on each of its backends."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from walrus_bench import programs
from walrus_bench.goals import LOGS, RECORD_SIZES, durable_logs
from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites import Prepared, Settings, limits

LIMITS = ("durable_4k", "durable_bandwidth", "durable_bandwidth_fresh", "group_commit_8", "record_copy")
BACKENDS = ("mmap", "direct", "io_uring")
AUTO = ("auto",)
QUIET = {"WALRUS_QUIET": "1"}  # without it walrus_rust prints with every append
PEERS: Mapping[str, Sequence[str]] = {"walrus_rust": ("fd", "mmap"), "raft_engine": AUTO, "fjall": AUTO}
ROCKSDB: Mapping[str, Sequence[str]] = {"rocksdb": AUTO}

GB = 1_000_000_000
QUICK_SHARE = 100  # a quick run writes this part of the bytes that a case writes: one in 100
SPARE_BYTES = 2 * GB  # what a disk must have beside what a case writes


@dataclass(frozen=True)
class Case:
    """What is measured: on which backends, and how much the case writes where that is not a matter of time."""

    name: str
    backends: Sequence[str] = BACKENDS
    bytes: int = 0
    kept_bytes: int = 0  # at once, of those; 0: all
    peers: bool = False  # whether other systems can do the same


CASES = (
    Case("durable_1_caller", peers=True),
    Case("durable_8_topics", peers=True),
    Case("durable_batch_2000", peers=True),
    Case("nosync_1_caller", peers=True),
    Case("nosync_sustained", AUTO, bytes=30 * GB, kept_bytes=3 * GB),
    Case("sealed_read", bytes=GB),
    Case("strict_cursor_read"),
    Case("strict_cursor_read_8"),
    Case("bytes_per_100b", AUTO, bytes=GB),
    Case("recovery_10gb", AUTO, bytes=10 * GB),
    Case("open_100k_logs", AUTO, kept_bytes=10 * GB),
)
PYTHON_CASES = ("python_append", "python_packed")


@contextmanager
def engine(settings: Settings) -> Iterator[Prepared]:
    """Sets up the engines and the limits they are held against."""
    peers = {**(PEERS if settings.peers else {}), **(ROCKSDB if settings.rocksdb else {})}
    features = ["peers"] * bool(peers) + ["rocksdb"] * settings.rocksdb
    program = programs.build("walrus-bench-engine", features=",".join(features))
    machine = limits.prepare(settings, LIMITS)
    subjects: list[Subject] = []
    notes = list(machine.notes)
    free_bytes = shutil.disk_usage(settings.data_dir).free
    for case in CASES:
        needed = _share(settings, case.kept_bytes or case.bytes) + SPARE_BYTES
        if case.bytes + case.kept_bytes and free_bytes < needed:
            notes.append(
                f"{case.name} was not measured: it needs {needed / GB:.0f} GB of disk, {free_bytes / GB:.0f} are free"
            )
            continue
        systems = {"walrus": case.backends, **(peers if case.peers else {})}
        for system, backends in systems.items():
            for backend in backends:
                measure = partial(_measure_native, program, case, system, backend)
                subjects.append(_subject(settings, case.name, system, backend, measure))
    subjects.extend(_subject(settings, case, "walrus", "auto", partial(_measure_python, case)) for case in PYTHON_CASES)
    yield Prepared([*machine.subjects, *subjects], notes=notes)


@contextmanager
def sizes(settings: Settings) -> Iterator[Prepared]:
    """Sets up the engine for durable appends to few and to many logs, of small and of large records."""
    program = programs.build("walrus-bench-engine")
    machine = limits.prepare(settings, ("durable_4k", "group_commit_8"))
    subjects = [
        _subject(settings, durable_logs(logs, size), "walrus", "auto", partial(_measure_logs, program, logs, size))
        for logs in LOGS
        for size in RECORD_SIZES
    ]
    yield Prepared([*machine.subjects, *subjects], notes=machine.notes)


def _measure_logs(program: Path, logs: int, record_bytes: int, settings: Settings, data_dir: Path) -> Sample:
    sizes = ("--logs", _share(settings, logs) or 1, "--record-bytes", record_bytes)
    return programs.run(program, "durable_logs", *sizes, "--dir", data_dir, seconds=settings.seconds)


def _subject(
    settings: Settings, case: str, system: str, backend: str, measure: Callable[[Settings, Path], Sample]
) -> Subject:
    def in_fresh_directory() -> Sample:
        """Written, reopened, read back and compared, then the sample."""
        data_dir = settings.data_dir / "engine"
        try:
            return measure(settings, data_dir)
        finally:
            shutil.rmtree(data_dir, ignore_errors=True)
            os.sync()  # or the next sample pays for freeing gigabytes

    return Subject(case, system, backend, in_fresh_directory)


def _measure_native(program: Path, case: Case, system: str, backend: str, settings: Settings, data_dir: Path) -> Sample:
    arguments: list[str | Path | float] = ["--system", system, "--backend", backend, "--dir", data_dir]
    if case.bytes:
        arguments += ["--bytes", _share(settings, case.bytes)]
    if settings.quick:
        arguments.append("--quick")
    return programs.run(program, case.name, *arguments, seconds=settings.seconds, environment=QUIET)


def _measure_python(case: str, settings: Settings, data_dir: Path) -> Sample:
    module = ("-m", "walrus_bench.python_engine", case)
    return programs.run(Path(sys.executable), *module, "--dir", data_dir, seconds=settings.seconds)


def _share(settings: Settings, size: int) -> int:
    return size // QUICK_SHARE if settings.quick else size
