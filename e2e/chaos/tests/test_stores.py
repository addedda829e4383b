"""Where a block lies in its file."""

from pathlib import Path

from chaos.stores import slot_bytes


def test_slots_are_as_large_as_the_blocks_unless_the_name_of_the_file_says_less():
    assert slot_bytes(Path("log/00000003.wal"), 10 << 20) == 10 << 20
    assert slot_bytes(Path("log/00000001-64k.wal"), 10 << 20) == 64 << 10
    assert slot_bytes(Path("log/00000002-1024k.wal"), 10 << 20) == 1 << 20
