"""Running native programs and fio, and reading what they print."""

import json
import sys
from pathlib import Path

import pytest
from walrus_bench import fio, programs
from walrus_bench.sampling import InvalidRunError

PYTHON = Path(sys.executable)


def script(directory: Path, text: str) -> Path:
    program = directory / "program"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_a_sample_is_the_line_that_the_program_printed(tmp_path: Path) -> None:
    program = script(tmp_path, """echo '{"value": 7, "unit": "us", "facts": {"p50_us": 7, "backend": "direct"}}'""")
    sample = programs.run(program, "case", seconds=1)
    assert (sample.value, sample.unit, sample.facts) == (7.0, "us", {"p50_us": 7, "backend": "direct"})


def test_a_sample_may_bring_its_observations(tmp_path: Path) -> None:
    program = script(tmp_path, """echo '{"value": 7, "unit": "ms", "facts": {}, "observations": [7, 2.5]}'""")
    assert programs.run(program, "case", seconds=1).observations == [7.0, 2.5]


def test_a_program_that_fails_makes_the_run_invalid_and_its_last_words_are_kept(tmp_path: Path) -> None:
    program = script(tmp_path, "echo record 7 read back differs >&2; exit 1")
    with pytest.raises(InvalidRunError, match="record 7 read back differs"):
        programs.run(program, seconds=1)


@pytest.mark.parametrize("said", ["", "no JSON", '{"value": "fast"}', "[]"])
def test_anything_but_a_sample_makes_the_run_invalid(tmp_path: Path, said: str) -> None:
    program = script(tmp_path, f"echo '{said}'")
    with pytest.raises(InvalidRunError, match="no sample"):
        programs.run(program, seconds=1)


def test_a_program_that_hangs_makes_the_run_invalid() -> None:
    with pytest.raises(InvalidRunError, match="did not end"):
        programs.output_of(PYTHON, "-c", "import signal; signal.pause()", timeout_s=0.2)


def test_fio_is_asked_for_the_probes_parameters_and_its_answer_is_read(tmp_path: Path) -> None:
    answer = {
        "jobs": [{"write": {"iops": 9_000.5, "bw_bytes": 2_000_000, "clat_ns": {"percentile": {"50.000000": 80_000}}}}]
    }
    (tmp_path / "answer").write_text(json.dumps(answer))
    program = script(tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/answer')

    latency = fio.measure(program, "durable_4k", file=tmp_path / "limit.dat", seconds=2)
    assert (latency.value, latency.unit, latency.facts["p50_us"]) == (9_000.5, "writes/s", 80.0)
    asked = (tmp_path / "asked").read_text().split()
    assert {"--bs=4k", "--direct=1", "--sync=dsync", "--overwrite=1", "--runtime=2000ms"} <= set(asked)

    bandwidth = fio.measure(program, "durable_bandwidth", file=tmp_path / "limit.dat", seconds=2)
    assert (bandwidth.value, bandwidth.unit) == (2.0, "MB/s")
    assert "--numjobs=2" in (tmp_path / "asked").read_text().split()


def test_an_answer_of_fio_that_cannot_be_read_makes_the_run_invalid(tmp_path: Path) -> None:
    with pytest.raises(InvalidRunError, match="fio"):
        fio.measure(script(tmp_path, "echo '{}'"), "durable_4k", file=tmp_path / "limit.dat", seconds=1)
