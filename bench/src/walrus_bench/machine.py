"""What the machine is, as far as a figure depends on it. Its name and its paths stay out of every report."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from walrus_bench.sampling import Fact


def facts(data_dir: Path) -> dict[str, Fact]:
    """Collects what is known of processor, memory, kernel and the file system under `data_dir`."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": _file_system(data_dir),
    }


def commit(repository: Path) -> str | None:
    """Names the commit measured, marked when the tree differs from it; None outside a git work tree."""
    if (git := shutil.which("git")) is None:
        return None
    describe = [git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        answer = subprocess.run(  # noqa: S603 (a fixed command)
            describe, cwd=repository, capture_output=True, text=True, check=True
        )
    except subprocess.CalledProcessError:
        return None
    return answer.stdout.strip()


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _file_system(path: Path) -> str:
    """Type of the deepest mount that holds `path`."""
    real = path.resolve()
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, mount_kind = line.split()[:3]
        if real.is_relative_to(mount) and Path(mount).is_relative_to(best):
            best, kind = Path(mount), mount_kind
    return kind
