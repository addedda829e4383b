"""Durable files: the only place that knows what it takes for a small file to survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


class DataRefusedError(Exception):
    """The data directory cannot be used: damaged, locked, of another node or of a newer format. Nothing was changed."""


def replace_durably(path: Path, content: bytes) -> None:
    """Put *content* under *path*; on return it survives a power cut, before that the old content does."""
    scratch = path.with_name(path.name + ".new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename within one directory; durable on return."""
    source.rename(target)
    sync_directory(target.parent)


def move_durably(source: Path, target: Path) -> None:
    """Rename into a folder somewhere below the source's own, which is made; durable on return."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    for folder in target.parents:
        sync_directory(folder)
        if folder == source.parent:
            break


def sync_directory(path: Path) -> None:
    """Make creations and renames in the directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
