"""How a worker of Spark that reads topics treats its memory. A worker is used again: what is done here is done once."""

import contextlib
import ctypes
import gc
from functools import cache
from typing import Final

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
# The most that glibc takes; pages and columns are smaller.
_ALLOCATED_MAX: Final = 32 << 20
# The pages of one task that are here at a time, and the columns made of them, take less.
_KEPT_MAX: Final = 64 << 20


@cache
def keep_freed_memory() -> None:
    """Has glibc keep the memory of one page for the next: 64 MiB at the end of its heap, and the holes in it.

    What is given back to the kernel comes again page by page, and each of them is cleared and mapped at its first use.
    glibc has an arena for each thread that meets another one, up to eight for each processor, and each arena keeps as
    much for itself. So there shall be one only. An arena that is there already stays, which `session.create_session`
    forbids from the start of a worker. Other C libraries do as they like.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _ALLOCATED_MAX)
        mallopt(_TRIM_THRESHOLD, _KEPT_MAX)


@cache
def spare_modules_from_collections() -> None:
    """Takes what the imports of a worker made out of the sight of Python's collector of garbage.

    A worker that Spark uses again collects after each of its tasks, which walks all objects there are: a sixth of all
    the processor time that a task of 64 MiB took.
    """
    gc.collect()  # garbage that is frozen would stay for good
    gc.freeze()
