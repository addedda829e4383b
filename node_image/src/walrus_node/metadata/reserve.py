"""Space that belongs to the metadata on a disk that fills up with records.

A file of a few MiB that holds nothing. Where a write of the metadata finds no space, the file gives up a piece of
itself and the write is tried again; pieces are small, so that nothing large of anybody else fits into them. It takes
back what it can as soon as there is space. With it a node whose disk is full still votes, renews its lease and hears
of trims.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)

RESERVE_BYTES = 8 * 1024 * 1024

_PIECE_BYTES = 256 * 1024
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


def is_no_space(error: OSError) -> bool:
    """Whether a write found no room; what was tried may be tried again."""
    return error.errno in _NO_SPACE


class Reserve:
    """Thread-safe. Losing the file loses nothing but the space."""

    def __init__(self, path: Path, size_bytes: int = RESERVE_BYTES) -> None:
        """Take the space, as far as there is some."""
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._held = min(os.fstat(self._file).st_size, size_bytes)
        self._is_told = False
        self.refill()

    @property
    def held_bytes(self) -> int:
        """What it could still give."""
        return self._held

    def refill(self) -> None:
        """Take back what was given, piece by piece, as far as there is space."""
        with self._lock:
            while self._held < self._size_bytes:
                piece = min(_PIECE_BYTES, self._size_bytes - self._held)
                try:
                    os.posix_fallocate(self._file, self._held, piece)
                except OSError as error:
                    if not is_no_space(error):
                        log.warning("the metadata has no reserve of space here: %s", error)
                    os.ftruncate(self._file, self._held)
                    return
                self._held += piece
            if self._is_told:
                log.info("the metadata has its reserve of space again")
            self._is_told = False

    def spend(self, write: Callable[[], T]) -> T:
        """Do *write*, which may be done again where it found no space; raises what it raises once nothing is left."""
        while True:
            try:
                return write()
            except OSError as error:
                if not is_no_space(error) or not self._give():
                    raise

    def close(self) -> None:
        os.close(self._file)

    def _give(self) -> bool:
        with self._lock:
            if self._held == 0:
                return False
            self._held = max(0, self._held - _PIECE_BYTES)
            os.ftruncate(self._file, self._held)
            if not self._is_told:
                log.warning(
                    "no space left on the disk: the metadata lives on its reserve of %d bytes", self._size_bytes
                )
            self._is_told = True
            return True
