"""What the suite of many topics reads of the brokers' processes."""

import os

import pytest
from walrus_bench.sampling import InvalidRunError
from walrus_bench.suites.topics import memory_bytes


def test_the_memory_of_a_process_is_what_it_has_touched():
    before = memory_bytes(os.getpid())
    touched = bytearray(os.urandom(1)) * (64 << 20)
    assert memory_bytes(os.getpid()) - before >= len(touched) * 0.9


def test_a_process_that_is_gone_ends_the_run():
    with pytest.raises(InvalidRunError, match="has ended"):
        memory_bytes(2**22 + 1)
