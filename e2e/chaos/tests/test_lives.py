"""Records of a topic that was deleted are found in the next one of its name."""

import pytest
from chaos.lives import PRODUCER, RECORDS, Lives
from harness.records import value_of
from walrus_client import Record


def records(life: int, *offsets: int) -> list[Record]:
    return [Record(offset, 0, None, value_of(PRODUCER + life, offset), ()) for offset in offsets or range(RECORDS)]


def state() -> Lives:
    return Lives(begun=4, ended=3, looks=1)


def test_a_topic_that_was_made_again_has_its_own_records_and_all_of_them() -> None:
    found = state()
    found.check_whole(4, records(4))
    assert found
    found.check_whole(4, records(3))
    found.check_whole(4, records(4)[:-1])
    found.check_whole(4, [record._replace(offset=record.offset + 1) for record in records(4)])
    assert len(found.false) == 3


def test_what_is_read_by_segments_is_of_one_life_for_ever() -> None:
    found = state()
    found.check_part("node", "uuid-3", records(3, 0, 1))
    found.check_part("node", "uuid-4", [])
    found.check_part("node", "uuid-4", records(4, 0))
    found.check_part("node", "uuid-3", records(3))
    assert found
    found.check_part("node", "uuid-3", records(4, 2))
    assert found.false == ["node: topic 3 has record 2 of topic 4"]


def test_a_name_may_give_a_life_that_was_just_deleted_which_is_told() -> None:
    found = state()
    found.check_name("node", 3, records(3))
    found.check_name("node", 3, records(4))
    assert found
    assert found.late == 1
    assert "1 times late" in str(found)


@pytest.mark.parametrize(
    "wrong",
    [
        records(4)[0]._replace(offset=20),
        records(4)[0]._replace(value=None),
        records(4)[0]._replace(value=value_of(PRODUCER + 4, 0, random=1)),
        records(5)[0],
        Record(0, 0, None, value_of(PRODUCER, 0), ()),
    ],
)
def test_records_that_no_life_has_at_that_offset_are_found(wrong: Record) -> None:
    by_segments, by_name = state(), state()
    by_segments.check_part("node", "uuid", [wrong])
    by_name.check_name("node", 3, [wrong])
    assert not by_segments
    assert not by_name


def test_a_run_in_which_nothing_was_deleted_or_looked_at_proves_nothing() -> None:
    assert not Lives(looks=1)
    assert not Lives(ended=1)
    assert Lives(ended=1, looks=1)
