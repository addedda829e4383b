"""The engine inside a Python process: one case, one fresh directory, one sample as a JSON line."""

import json
import time
from array import array
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from walrus_core import Walrus

TOPIC = "bench"
PACKED_RECORDS = 2_000
RECORDS_PER_SECOND = 200_000  # at the usual 3 s: a burst of 0.6 GB
IDLE_BYTES_PER_S = 1_000  # what a process that has written all it held still writes, at most
READ_BYTES = 4 << 20


class Case(StrEnum):
    """What is called."""

    APPEND = "python_append"
    PACKED = "python_packed"


def main(
    case: Case,
    directory: Annotated[Path, typer.Option("--dir", help="Missing or empty.")],
    backend: Annotated[str, typer.Option()] = "auto",
    seconds: Annotated[float, typer.Option(min=0.01)] = 3.0,
    record_bytes: Annotated[int, typer.Option(min=1)] = 1024,
) -> None:
    """Appends without syncing, reads everything back, and prints microseconds: per call, or per record of a buffer."""
    record = Random(1).randbytes(record_bytes)  # noqa: S311 (the same bytes in every run)
    counted = max(int(seconds * RECORDS_PER_SECOND), PACKED_RECORDS) // PACKED_RECORDS * PACKED_RECORDS
    with Walrus.open(directory, backend=backend, fsync="never") as walrus:
        append = _append_each if case is Case.APPEND else _append_packed
        run = append(walrus, record)
        run(counted)  # into memory that the engine has not had before: not counted
        _wait_until_written()
        elapsed_s = run(counted)
        in_use, _ = walrus.backend
        records = 2 * counted
        _check(walrus, record, records)
    facts = {"backend_in_use": in_use, "records_checked": records}
    print(json.dumps({"value": elapsed_s / counted * 1e6, "unit": "us", "facts": facts}))  # noqa: T201


def _wait_until_written() -> None:
    """Waits until this process writes nothing any more: the engine has what the warm-up left on the disk."""
    written = -1
    while (now := _written_bytes()) - written > IDLE_BYTES_PER_S:
        written = now
        time.sleep(1)


def _written_bytes() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def _append_each(walrus: Walrus, record: bytes) -> Callable[[int], float]:
    def run(records: int) -> float:
        append = walrus.append
        start = time.perf_counter()
        for _ in range(records):
            append(TOPIC, record)
        return time.perf_counter() - start

    return run


def _append_packed(walrus: Walrus, record: bytes) -> Callable[[int], float]:
    data = record * PACKED_RECORDS
    positions = array("q", range(0, len(data) + 1, len(record)))

    def run(records: int) -> float:
        append = walrus.append_packed
        start = time.perf_counter()
        for _ in range(records // PACKED_RECORDS):
            append(TOPIC, data, positions)
        return time.perf_counter() - start

    return run


def _check(walrus: Walrus, record: bytes, records: int) -> None:
    found = 0
    while found < records:
        batch = walrus.read_batch(TOPIC, READ_BYTES, start_offset=found)
        if not len(batch) or any(data != record for _, data in batch):
            raise SystemExit(f"a record from offset {found} on differs from what was written, or is missing")
        found += len(batch)
    if walrus.offsets(TOPIC) != range(records):
        raise SystemExit(f"{records} records were acknowledged and {walrus.offsets(TOPIC)} are there")


if __name__ == "__main__":
    typer.run(main)
