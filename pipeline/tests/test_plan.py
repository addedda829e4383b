"""How far a micro-batch goes, and which task reads what."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout, layouts, partition, topic
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import SegmentLayout, with_estimated_bytes
from pyspark_walrus.offsets import Offsets, ids, latest, partitions, resolve
from pyspark_walrus.options import EARLIEST, Bound
from pyspark_walrus.plan import PACK_BYTES_MAX, bytes_between, next_end, plan_splits, share_out

limits = st.none() | st.integers(1, 2_000)


def earliest(there):
    return resolve(Bound(EARLIEST), there, option="startingOffsets")


def splits(there, start=None, end=None, *, bytes_max=64 << 20, splits_min=1, fail=True):
    return plan_splits(
        start or earliest(there),
        end or latest(there),
        there,
        bytes_per_split_max=bytes_max,
        splits_min=splits_min,
        fail_on_data_loss=fail,
    )


def pieces(planned):
    return [piece for split in planned for piece in split.pieces]


@given(st.data(), layouts, st.integers(1, 1 << 20), st.integers(1, 40))
def test_splits_cover_the_range_exactly_once_and_stay_within_segments(data, there, bytes_max, splits_min):
    low, high = earliest(there).next, latest(there).next
    start = {key: data.draw(st.integers(low[key], high[key])) for key in low}
    end = {key: data.draw(st.integers(start[key], high[key])) for key in low}
    planned = splits(
        there,
        Offsets(ids(there), start),
        Offsets(ids(there), end),
        bytes_max=bytes_max,
        splits_min=splits_min,
    )
    read = pieces(planned)
    for key, found in partitions(there):
        mine = sorted((p for p in read if (p.topic, p.partition) == key), key=lambda piece: piece.start)
        covered = [offset for piece in mine for offset in range(piece.start, piece.end)]
        assert covered == list(range(start[key], end[key]))
        for piece in mine:
            assert piece.start < piece.end
            segment = next(s for s in found.segments if s.uuid == piece.segment)
            assert segment.base_offset <= piece.start <= piece.end <= segment.end_offset
            assert piece.addresses == segment.addresses
    records = sum(end.values()) - sum(start.values())
    assert len(planned) >= min(splits_min, records)
    for split in planned:
        assert split.pieces
        assert all(a.end == b.start for a, b in pairwise(split.pieces))
        assert len(split.pieces) == 1 or sum(p.bytes for p in split.pieces) <= PACK_BYTES_MAX


@given(layouts, st.integers(1, 1 << 20))
def test_no_sealed_piece_is_larger_than_asked(there, bytes_max):
    for piece in pieces(splits(there, bytes_max=bytes_max)):
        mean = piece.bytes / (piece.end - piece.start)
        assert not piece.sealed or piece.bytes <= bytes_max + mean


def test_sealed_segments_are_read_side_by_side_and_the_open_one_whole():
    there = layout(topic(partition(1000, 1000, 3000, record_bytes=10_000)))
    planned = splits(there, bytes_max=5_000_000)
    assert [(s.pieces[0].start, s.pieces[-1].end) for s in planned] == [
        (0, 500),
        (500, 1000),
        (1000, 1500),
        (1500, 2000),
        (2000, 5000),
    ]


def test_small_neighbours_are_one_task():
    there = layout(topic(partition(*[10] * 50)))
    assert len(splits(there)) == 1


def test_a_reversed_range_is_refused():
    there = layout(topic(partition(100)))
    start, end = Offsets(ids(there), {("orders", 0): 30}), Offsets(ids(there), {("orders", 0): 20})
    with pytest.raises(SourceError) as caught:
        splits(there, start, end)
    assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE


def test_records_that_are_gone_are_an_error_unless_the_query_accepts_it():
    there = layout(topic(partition(100, log_start=50)))
    start = Offsets(ids(there), {("orders", 0): 20})
    with pytest.raises(SourceError) as caught:
        splits(there, start)
    assert caught.value.reason is Reason.DATA_LOSS
    assert [(p.start, p.end) for p in pieces(splits(there, start, fail=False))] == [(50, 150)]


def test_a_range_that_is_gone_altogether_is_nothing_to_read_if_the_query_accepts_it():
    there = layout(topic(partition(100, log_start=50)))
    start, end = (Offsets(ids(there), {("orders", 0): offset}) for offset in (20, 40))
    assert splits(there, start, end, fail=False) == []


def test_a_partition_that_is_new_is_read_from_its_beginning():
    there = layout(topic(partition(10), partition(20)))
    start = Offsets(ids(there), {("orders", 0): 10})
    assert [(p.partition, p.start, p.end) for p in pieces(splits(there, start))] == [(1, 0, 20)]
    assert next_end(start, latest(there), there, offsets_max=5, bytes_max=None).next == {
        ("orders", 0): 10,
        ("orders", 1): 5,
    }


@given(layouts, limits, limits)
def test_limited_micro_batches_reach_the_end_and_keep_to_the_limit(there, offsets_max, bytes_max):
    at, target, rounds = earliest(there), latest(there), 0
    total = sum(target.next.values()) - sum(at.next.values())
    while at != target and rounds < 50:
        end = next_end(at, target, there, offsets_max=offsets_max, bytes_max=bytes_max)
        taken = sum(end.next.values()) - sum(at.next.values())
        assert taken >= 1
        assert all(at.next[key] <= end.next[key] <= target.next[key] for key in target.next)
        if offsets_max is not None:
            assert taken <= offsets_max
        if bytes_max is not None and taken > 1:
            assert sum(bytes_between(there, key, at.next[key], end.next[key]) for key in at.next) <= bytes_max
        if bytes_max is None:
            assert taken == min(total, offsets_max or total)
        total -= taken
        at, rounds = end, rounds + 1


def test_limits_are_shared_in_proportion_to_the_backlog():
    there = layout(topic(partition(3000), partition(1000), partition(0)))
    end = next_end(earliest(there), latest(there), there, offsets_max=100, bytes_max=None)
    assert end.next == {("orders", 0): 75, ("orders", 1): 25, ("orders", 2): 0}


def test_an_end_never_lies_before_the_start_that_spark_knows():
    there = layout(topic(partition(100)))
    start = Offsets(ids(there), {("orders", 0): 150})
    assert next_end(start, latest(there), there, offsets_max=10, bytes_max=10) == start


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 10**12)), st.integers(0, 10**9))
def test_shares_add_up_and_nobody_gets_more_than_wanted(wants, amount):
    shares = share_out(amount, wants)
    assert sum(shares.values()) == min(amount, sum(wants.values()))
    assert all(0 <= shares[key] <= wants[key] for key in wants)


def test_sizes_that_nobody_could_say_are_estimated_from_the_others():
    unknown = SegmentLayout("x", 100, 300, True, ("a:1",))
    there = topic(partition(100, record_bytes=50))
    known = there.partitions[0]
    mixed = topic(type(known)(0, 300, (*known.segments, unknown)))
    assert [s.bytes for s in with_estimated_bytes(mixed).partitions[0].segments] == [5_000, 10_000]
    alone = topic(type(known)(100, 300, (unknown,)))
    assert with_estimated_bytes(alone).partitions[0].segments[0].bytes == 200 * 1024
