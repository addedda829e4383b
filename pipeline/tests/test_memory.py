"""What a worker of Spark does with its memory."""

import platform
import subprocess
import sys

import pytest

# Six pages of 4 MiB are there at a time, as in a task that reads ahead, and then none.
# The kernel counts what it maps anew.
_ROUNDS = """
import ctypes, resource
{before}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def rounds():
    for _ in range(10):
        pages = [libc.malloc(4 << 20) for _ in range(6)]
        for page in pages:
            ctypes.memset(page, 1, 4 << 20)
        for page in pages:
            libc.free(page)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

first = rounds()
print(rounds() - first)
"""


def _faults(before: str) -> int:
    script = _ROUNDS.format(before=before)
    return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they like")
def test_memory_of_pages_that_were_read_is_used_again_and_not_mapped_anew() -> None:
    """A tenth of all that a task took went into pages of memory that the task before had given back."""
    assert _faults("from pyspark_walrus.memory import keep_freed_memory; keep_freed_memory()") < 100
