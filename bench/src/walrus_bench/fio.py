"""fio as a second opinion on the disk limits: file, sizes, flags and writers of our own probe."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from walrus_bench.programs import output_of
from walrus_bench.sampling import InvalidRunError, Sample

NOT_FOUND = "fio not found"
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "durable_4k": ("--bs=4k",),
    # two writers, each in its own half
    "durable_bandwidth": ("--bs=1m", "--numjobs=2", "--size=50%", "--offset_increment=50%"),
}


def find() -> Path | None:
    """Finds fio; installs it from the distribution when it is missing and we may. None when there is none."""
    found, apt_get = shutil.which("fio"), shutil.which("apt-get")
    if found is None and apt_get is not None and os.geteuid() == 0:
        subprocess.run(  # noqa: S603 (a fixed command)
            [apt_get, "install", "--yes", "--quiet", "fio"], capture_output=True, check=False
        )
        found = shutil.which("fio")
    return None if found is None else Path(found)


def measure(fio: Path, limit: str, *, file: Path, seconds: float) -> Sample:
    """Measures `durable_4k` (writes/s) or `durable_bandwidth` (MB/s) on a file that was written in full."""
    # sync=dsync opens the file with O_DSYNC: every write is what RWF_DSYNC makes of it
    text = output_of(
        fio,
        "--name=limit",
        f"--filename={file}",
        "--rw=write",
        *PARAMETERS[limit],
        "--ioengine=pvsync2",
        "--direct=1",
        "--sync=dsync",
        "--overwrite=1",
        "--group_reporting",
        "--time_based",
        f"--ramp_time={round(seconds * 100)}ms",
        f"--runtime={round(seconds * 1000)}ms",
        "--output-format=json",
        timeout_s=seconds + 60,
    )
    try:
        writes = json.loads(text)["jobs"][0]["write"]
        if limit == "durable_bandwidth":
            return Sample(writes["bw_bytes"] / 1e6, "MB/s")
        quantiles = writes["clat_ns"]["percentile"]
        return Sample(float(writes["iops"]), "writes/s", {"p50_us": quantiles["50.000000"] / 1e3})
    except (ValueError, KeyError, IndexError) as error:
        raise InvalidRunError(f"cannot read fio's answer: {text[:200]!r}") from error
