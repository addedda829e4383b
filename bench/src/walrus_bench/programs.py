"""The native programs: built by cargo, started anew for every sample, answering with one JSON line."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from walrus_bench.sampling import InvalidRunError, Sample

BENCH_DIR = Path(__file__).resolve().parents[2]
REPOSITORY = BENCH_DIR.parent
START_AND_CHECK_S = 300  # what a program may take beside the seconds it measures: building up, reading back


def build(package: str, *, features: str = "") -> Path:
    """Builds a program of the workspace under bench/ for release; cargo prints its own progress."""
    cargo = ["cargo", "build", "--release", "--locked", "--package", package, "--features", features]
    messages = ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(  # noqa: S603 (a fixed command)
        [*cargo, *messages], cwd=BENCH_DIR, stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode != 0:
        raise InvalidRunError(f"cargo could not build {package}; its messages are above")
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == package:
            return Path(message["executable"])
    raise InvalidRunError(f"cargo built no program {package}")


def run(
    program: Path, *arguments: str | Path | float, seconds: float, environment: Mapping[str, str] | None = None
) -> Sample:
    """Runs `program` once and returns the sample it printed."""
    arguments = (*arguments, "--seconds", seconds)
    line = output_of(program, *arguments, timeout_s=seconds + START_AND_CHECK_S, environment=environment)
    try:
        answer = json.loads(line)
        sample = Sample(float(answer["value"]), answer["unit"], answer["facts"])
        return replace(sample, observations=[float(each) for each in answer.get("observations", ())])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRunError(f"{program.name} printed no sample but {line[:200]!r}") from error


def output_of(
    program: Path,
    *arguments: str | Path | float,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a program and returns what it printed. Raises InvalidRunError with its last words when it fails."""
    command = [str(program), *(str(argument) for argument in arguments)]
    try:
        ended = subprocess.run(  # noqa: S603 (our own programs and fio)
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "RUST_LIB_BACKTRACE": "0", **(environment or {})},  # its error is enough
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidRunError(f"{' '.join(command)} did not end within {timeout_s:.0f} s") from error
    if ended.returncode != 0:
        raise InvalidRunError(f"{' '.join(command)} failed ({ended.returncode}): {ended.stderr.strip()[-2000:]}")
    return ended.stdout
