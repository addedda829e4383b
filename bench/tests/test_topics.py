"""What the suite of many topics reads of the brokers' processes."""

import mmap
import os

import pytest
from walrus_bench.sampling import InvalidRunError
from walrus_bench.suites.topics import memory_bytes


def test_the_memory_of_a_process_is_what_it_has_touched():
    before = memory_bytes(os.getpid())
    # Memory of its own: an allocator could give what others in this process have touched before, and freed.
    with mmap.mmap(-1, 64 << 20) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
        assert memory_bytes(os.getpid()) - before >= len(memory) * 0.9


def test_a_process_that_is_gone_ends_the_run():
    with pytest.raises(InvalidRunError, match="has ended"):
        memory_bytes(2**22 + 1)
