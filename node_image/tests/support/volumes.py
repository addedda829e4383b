"""A volume of a node's own that is small and can be made larger while the node runs.

It is a tmpfs in namespaces of the node's process: it goes with that, and nobody needs another right than to make such
namespaces.
"""

import subprocess
from pathlib import Path

import pytest

_INSIDE = ("unshare", "--user", "--map-root-user", "--mount")
_MOUNT = 'mount -t tmpfs -o size="$0",mode=700 none "$1" && shift && exec "$@"'


def mounted(directory: Path, size: str) -> tuple[str, ...]:
    """What a command is put behind, so that the directory is a volume for it."""
    directory.mkdir(parents=True, exist_ok=True)
    return (*_INSIDE, "sh", "-c", _MOUNT, size, str(directory))


def grow(process: int, directory: Path, size: str) -> None:
    """The volume that the process has at the directory is larger from now on."""
    _in(process, "mount", "-o", f"remount,size={size}", str(directory))


def stuff(process: int, directory: Path) -> None:
    """Leaves not one free page there."""
    _in(process, "sh", "-c", f"cat /dev/zero > {directory}/ballast; test -s {directory}/ballast")


def missing(directory: Path) -> str:
    """Why there can be no such volume here; "" where there can."""
    try:
        done = subprocess.run((*mounted(directory, "1m"), "true"), capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or ("" if done.returncode == 0 else f"unshare ended with {done.returncode}")


def needed(directory: Path) -> None:
    """Skips the test, and says why, where there can be none."""
    why = missing(directory)
    if why:
        pytest.skip(f"a volume that can grow needs user and mount namespaces: {why}")


def _in(process: int, *command: str) -> None:
    entered = ("nsenter", "--target", str(process), "--user", "--mount", "--preserve-credentials")
    subprocess.run((*entered, *command), check=True, capture_output=True)
