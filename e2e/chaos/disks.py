"""A file system of its own for each node, so that a disk can be full. Lives as long as this program's mounts do."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

DISK_BYTES = 2 * 2**30  # sparse: what nobody wrote takes no room
BLOCK_BYTES = 4096
BALLAST = "ballast"


class DiskError(Exception):
    """A disk could not be made."""


def missing(directory: Path) -> str:
    """Why no disk can be made in *directory*; "" if one can."""
    try:
        mount(directory, "probe")
        unmount(directory, "probe")
    except (DiskError, OSError) as failure:
        return str(failure)
    return ""


def mount(directory: Path, name: str) -> None:
    """Makes `directory/name` a file system of its own."""
    image = directory / f"{name}.ext4"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    (directory / name).mkdir()
    _run("mkfs.ext4", "-q", "-m", "0", "-b", str(BLOCK_BYTES), str(image))
    _run("mount", "-o", "loop", str(image), str(directory / name))


def fill(place: Path) -> None:
    """Leaves not one free block. What is freed meanwhile is taken in steps of a block at least, so this ends."""
    with (place / BALLAST).open("ab") as file:
        step = 2**28
        while step >= BLOCK_BYTES:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
            except OSError:
                step //= 2


def free(place: Path) -> None:
    """Takes the ballast away."""
    with suppress(FileNotFoundError):
        (place / BALLAST).unlink()


def unmount(directory: Path, name: str) -> None:
    """Takes the file system away, with what is in it."""
    _run("umount", str(directory / name))
    (directory / name).rmdir()
    (directory / f"{name}.ext4").unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise DiskError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
