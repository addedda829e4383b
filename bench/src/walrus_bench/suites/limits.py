"""The limits of the machine as subjects: our probe, and fio beside it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from walrus_bench import fio, programs
from walrus_bench.sampling import FIO, PROBE, Subject
from walrus_bench.suites import Prepared, Settings

FILE_MIB = 1024
QUICK_FILE_MIB = 64


def prepare(settings: Settings, limits: Sequence[str]) -> Prepared:
    """Builds the probe and fills the file it writes to; the subjects measure `limits`."""
    probe = programs.build("walrus-bench-probe")
    file = settings.data_dir / "limit.dat"
    file_mib = QUICK_FILE_MIB if settings.quick else FILE_MIB
    on_file: tuple[str | Path | int, ...] = ("--file", file, "--file-mib", file_mib)
    programs.output_of(probe, "prepare", *on_file, timeout_s=programs.START_AND_CHECK_S)

    by_fio = fio.find()
    subjects = []
    for limit in limits:
        measure = partial(programs.run, probe, limit, *on_file, seconds=settings.seconds)
        subjects.append(Subject(limit, PROBE, "", measure))
        if by_fio is not None and limit in fio.PARAMETERS:
            measure_by_fio = partial(fio.measure, by_fio, limit, file=file, seconds=settings.seconds)
            subjects.append(Subject(limit, FIO, "", measure_by_fio))
    return Prepared(subjects, notes=() if by_fio else (fio.NOT_FOUND,))
