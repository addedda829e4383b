"""What a compaction may take is told from what it may not, for whoever reads and in the end."""

from chaos.ages import Clocks
from chaos.compacted import NUMBER, TOMBSTONE_KEPT_S, Compacted
from walrus_client import Header, Record

OLD_S = 10.0 + 2 * TOMBSTONE_KEPT_S
SENT = [(b"a", False), (b"b", False), (b"a", False), (b"b", True), (b"c", False)]
REST = [2, 4]


def state() -> Compacted:
    """The value of `a` is at 2, that of `c` at 4, and `b` was deleted at 3."""
    found = Compacted(Clocks(3), sweeps=1)
    for key, is_tombstone in SENT:
        found.send(key, is_tombstone=is_tombstone, now_s=10.0)
    found.acked = len(SENT)
    return found


def record(found: Compacted, number: int) -> Record:
    key, value, headers = found.content(number)
    return Record(number, 0, key, value, headers)


def test_a_follower_is_given_what_was_appended_in_order() -> None:
    found = state()
    for last, number in ((-1, 0), (0, 2), (2, 3), (3, 4)):
        found.check_record("", last, record(found, number))
    assert found


def test_a_record_that_comes_twice_or_out_of_order_is_found() -> None:
    found = state()
    found.check_record("node", 2, record(found, 2))
    found.check_record("node", 3, record(found, 2))
    assert found.false == ["node: offset 2 came after 2", "node: offset 2 came after 3"]


def test_other_bytes_than_were_appended_at_an_offset_are_found() -> None:
    found = state()
    wrong = [
        record(found, 0)._replace(offset=2),  # an older value of the same key
        record(found, 2)._replace(key=b"b"),
        record(found, 2)._replace(value=None),
        record(found, 2)._replace(headers=()),
        record(found, 3)._replace(value=b""),
        record(found, 3)._replace(headers=(Header(NUMBER, b"1"),)),  # the tombstone of another moment
        record(found, 4)._replace(offset=5),  # nobody appended so much
    ]
    for each in wrong:
        found.check_record("", -1, each)
    assert len(found.false) == len(wrong)


def test_a_follower_may_pass_over_what_a_later_record_stands_for() -> None:
    found = state()
    found.check_passed_over("", 0, 2, now_s=10.0)
    assert found
    found.check_passed_over("", 2, 3, now_s=OLD_S)
    assert len(found.false) == 1


def test_a_tombstone_may_be_passed_over_once_it_is_old() -> None:
    found = state()
    found.check_passed_over("", 3, 4, now_s=OLD_S)
    assert found
    found.check_passed_over("", 3, 4, now_s=10.0)
    assert len(found.false) == 1


def test_a_tombstone_may_be_gone_at_once_when_a_majority_of_the_clocks_is_ahead() -> None:
    found = state()
    found.clocks.go_ahead([1, 3], now_s=9.0)
    found.check_passed_over("", 3, 4, now_s=10.0)
    assert found


def test_whoever_reads_from_the_beginning_finds_the_last_of_each_key() -> None:
    found = state()
    found.check_sweep("", 5, [0, 1, 2, 3, 4], now_s=10.0)
    found.check_sweep("", 5, [2, 3, 4], now_s=10.0)
    found.check_sweep("", 5, REST, now_s=OLD_S)
    found.check_sweep("", 2, [0, 1], now_s=10.0)  # others were acknowledged after it began
    assert found
    assert found.sweeps == 5


def test_a_last_record_that_is_missing_is_found() -> None:
    for offsets, now_s in (([0, 1, 3, 4], OLD_S), ([2, 4], 10.0), ([0, 1, 2, 3], OLD_S), ([], OLD_S)):
        found = state()
        found.check_sweep("", 5, offsets, now_s)
        assert not found, offsets


def test_a_record_is_missing_where_the_later_one_of_its_key_was_not_there_either() -> None:
    """Record 0 must not have gone for record 2, which the reader would then have found behind it."""
    found = state()
    found.check_sweep("", 1, [1], now_s=10.0)
    assert not found


def test_a_record_may_be_missing_for_a_tombstone_behind_the_end_that_is_gone_itself() -> None:
    found = state()
    found.check_sweep("", 3, [0, 2], now_s=OLD_S)
    assert found
    found.check_sweep("", 3, [0, 2], now_s=10.0)
    assert not found


def test_records_that_were_gone_while_faults_were_done_are_counted() -> None:
    found = state()
    found.note_gone(4, [2, 3, 4])
    found.note_gone(1, [0, 1])
    assert found.gone == 2


def test_in_the_end_each_key_has_its_last_value_and_deleted_ones_have_none() -> None:
    found = state()
    found.check_last("", [record(found, number) for number in REST])
    found.check_last("", [record(found, number) for number in range(5)])
    found.check_last("", [record(found, number) for number in (2, 3, 4)])
    assert found
    assert found.rest() == REST


def test_another_last_value_none_or_that_of_a_deleted_key_is_found() -> None:
    for numbers in ([0, 4], [4], [1, 2, 4], []):
        found = state()
        found.check_last("", [record(found, number) for number in numbers])
        assert not found, numbers
    stranger = state()
    stranger.check_last("", [*(record(stranger, n) for n in REST), Record(5, 0, b"d", b"x", ())])
    assert not stranger


def test_the_disks_hold_the_values_that_were_sent() -> None:
    found = state()
    assert found.hashes() == [hash(found.content(number)[1]) for number in range(5)]
    assert found.hashes()[3] == hash(None)


def test_a_run_in_which_nobody_read_proves_nothing() -> None:
    assert not Compacted(Clocks(3))


def test_a_topic_that_is_not_compacted_in_the_end_is_found_where_that_is_judged() -> None:
    found = state()
    found.check_sweep("", 5, [2, 3, 4], now_s=10.0)
    assert found
    found.is_rest_judged = True
    assert not found
    assert "3 left in the end, 2 at rest" in str(found)
    found.is_at_rest = True
    assert found
