"""How far a micro-batch goes, and which task reads what."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout, layouts, partition, topic
from pyspark_walrus.errors import SourceError
from pyspark_walrus.layout import SegmentLayout, with_estimated_bytes
from pyspark_walrus.losses import Cause, Loss
from pyspark_walrus.offsets import Offsets, ids, latest, partitions, resolve
from pyspark_walrus.options import EARLIEST, Bound
from pyspark_walrus.plan import (
    PACK_BYTES_MAX,
    Plan,
    bytes_between,
    changed_topics,
    next_end,
    plan_range,
    replaced,
    share_out,
    unreachable,
)

limits = st.none() | st.integers(1, 2_000)


def earliest(there):
    return resolve(Bound(EARLIEST), there)


def planned(there, start=None, end=None, *, bytes_max=64 << 20, splits_min=1):
    return plan_range(
        start or earliest(there), end or latest(there), there, bytes_per_split_max=bytes_max, splits_min=splits_min
    )


def splits(there, start=None, end=None, **limits):
    plan = planned(there, start, end, **limits)
    assert plan.losses == ()
    return plan.splits


def pieces(splits):
    return [piece for split in splits for piece in split.pieces]


@given(st.data(), layouts, st.integers(1, 1 << 20), st.integers(1, 40))
def test_splits_cover_the_range_exactly_once_and_stay_within_segments(data, there, bytes_max, splits_min):
    low, high = earliest(there).next, latest(there).next
    start = {key: data.draw(st.integers(low[key], high[key])) for key in low}
    end = {key: data.draw(st.integers(start[key], high[key])) for key in low}
    found_splits = splits(
        there,
        Offsets(ids(there), start),
        Offsets(ids(there), end),
        bytes_max=bytes_max,
        splits_min=splits_min,
    )
    read = pieces(found_splits)
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
    assert len(found_splits) >= min(splits_min, records)
    for split in found_splits:
        assert split.pieces
        assert all(a.end == b.start for a, b in pairwise(split.pieces))
        assert len(split.pieces) == 1 or sum(p.bytes for p in split.pieces) <= PACK_BYTES_MAX


@given(layouts, st.integers(1, 1 << 20))
def test_no_piece_is_larger_than_asked(there, bytes_max):
    for piece in pieces(splits(there, bytes_max=bytes_max)):
        mean = piece.bytes / (piece.end - piece.start)
        assert piece.bytes <= bytes_max + mean


def test_an_open_segment_is_cut_like_a_sealed_one():
    there = layout(topic(partition(1000, 3000, record_bytes=10_000)))
    found = splits(there, bytes_max=5_000_000)
    starts = [0, 500, 1000, 1500, 2000, 2500, 3000, 3500]
    assert [(s.pieces[0].start, s.pieces[-1].end) for s in found] == [(start, start + 500) for start in starts]


def test_small_neighbours_are_one_task():
    there = layout(topic(partition(*[10] * 50)))
    assert len(splits(there)) == 1


def test_records_that_are_gone_are_losses_with_their_cause():
    there = layout(topic(partition(100, log_start=50)))
    start, end = (Offsets(ids(there), {("orders", 0): offset}) for offset in (20, 170))
    plan = planned(there, start, end)
    assert [(p.start, p.end) for p in pieces(plan.splits)] == [(50, 150)]
    assert plan.losses == (
        Loss("orders", 0, 20, 50, Cause.TRIMMED),
        Loss("orders", 0, 150, 170, Cause.CUT_OFF),
    )


def test_a_range_that_is_gone_altogether_is_one_loss():
    there = layout(topic(partition(100, log_start=50)))
    start, end = (Offsets(ids(there), {("orders", 0): offset}) for offset in (20, 40))
    assert planned(there, start, end) == Plan((), (Loss("orders", 0, 20, 40, Cause.TRIMMED),))


def test_a_range_of_a_deleted_topic_is_a_loss_and_what_it_says_of_others_is_not_looked_at():
    there = layout(topic(partition(10), name="bills", uuid="u-2"))
    names = {"orders": "u-1", "bills": "u-2", "gone": "u-3"}
    start = Offsets(names, {("bills", 0): 3, ("gone", 0): 7, ("orders", 0): 0})
    end = Offsets(names, {("bills", 0): 8, ("gone", 0): 7, ("orders", 0): 5})
    assert changed_topics(start, end) == {"bills", "orders"}
    plan = planned(there, start, end)
    assert [(p.topic, p.start, p.end) for p in pieces(plan.splits)] == [("bills", 3, 8)]
    assert plan.losses == (Loss("orders", 0, 0, 5, Cause.DELETED),)


def test_a_partition_that_is_new_begins_at_its_beginning_and_is_read_from_the_next_range_on():
    there = layout(topic(partition(10), partition(20)))
    start = Offsets(ids(there), {("orders", 0): 4})
    end = next_end(start, latest(there), there, offsets_max=5, bytes_max=None)
    assert end.next == {("orders", 0): 9, ("orders", 1): 0}
    assert [(p.partition, p.start, p.end) for p in pieces(splits(there, start, end))] == [(0, 4, 9)]
    assert [(p.partition, p.start, p.end) for p in pieces(splits(there, end))] == [(0, 9, 10), (1, 0, 20)]


def test_a_new_partition_of_a_known_topic_begins_at_0_even_where_retention_was_faster():
    there = layout(topic(partition(10), partition(20, log_start=5)))
    end = next_end(Offsets(ids(there), {("orders", 0): 10}), latest(there), there, offsets_max=None, bytes_max=None)
    assert end.next["orders", 1] == 0
    assert unreachable(end, there) == [Loss("orders", 1, 0, 5, Cause.TRIMMED)]


def test_a_topic_that_the_query_did_not_know_begins_where_its_log_does():
    there = layout(topic(partition(10)), topic(partition(20, log_start=5), name="bills", uuid="u-2"))
    start = Offsets({"orders": "u-1"}, {("orders", 0): 10})
    end = next_end(start, latest(there), there, offsets_max=None, bytes_max=None)
    assert end == Offsets({"orders": "u-1", "bills": "u-2"}, {("orders", 0): 10, ("bills", 0): 5})


def test_offsets_of_a_topic_that_is_not_subscribed_to_stay():
    there = layout(topic(partition(10)))
    start = Offsets({"orders": "u-1", "bills": "u-2"}, {("orders", 0): 3, ("bills", 0): 8})
    end = next_end(start, latest(there), there, offsets_max=None, bytes_max=None)
    assert end == Offsets(start.ids, {("orders", 0): 10, ("bills", 0): 8})


def test_a_fixed_target_leaves_out_partitions_that_came_later():
    target = latest(layout(topic(partition(10))))
    there = layout(topic(partition(15), partition(20)))
    start = Offsets(ids(there), {("orders", 0): 3})
    assert next_end(start, target, there, offsets_max=None, bytes_max=None).next == {("orders", 0): 10}


def test_a_partition_that_lost_its_end_is_told_of_and_its_range_back_has_no_records():
    there = layout(topic(partition(100)))
    start = Offsets(ids(there), {("orders", 0): 150})
    assert unreachable(start, there) == [Loss("orders", 0, 100, 150, Cause.CUT_OFF)]
    assert next_end(start, latest(there), there, offsets_max=10, bytes_max=10) == start
    assert planned(there, start, Offsets(ids(there), {("orders", 0): 100})) == Plan((), ())


def test_offsets_that_lie_in_other_segments_than_they_did_are_lost():
    before = layout(topic(partition(100, 200)))
    read = pieces(splits(before))
    assert replaced(read, before) == []
    assert replaced(read, layout(topic(partition(100, 250)))) == []  # it went on
    assert replaced(read, layout(topic(partition(100, 100)))) == []  # nothing was appended instead
    assert replaced(read, layout(topic(partition(100, 200), uuid="another"))) == []
    after = layout(topic(partition(100, 40, 500)))
    assert replaced(read, after) == [Loss("orders", 0, 140, 300, Cause.CUT_OFF)]
    shorter = layout(topic(partition(100, 40, 20)))
    assert replaced(read, shorter) == [Loss("orders", 0, 140, 160, Cause.CUT_OFF)]
    trimmed = partition(100, 40, 500)
    there = layout(topic(replace(trimmed, log_start=150, segments=trimmed.segments[2:])))
    assert replaced(read, there) == [Loss("orders", 0, 150, 300, Cause.CUT_OFF)]


def test_offsets_that_a_compaction_put_into_another_segment_are_not_lost():
    there = partition(100, 50, 30)
    numbered = enumerate(there.segments, 7)
    segments = [replace(segment, epochs=((epoch, segment.base_offset),)) for epoch, segment in numbered]
    before = layout(topic(replace(there, segments=tuple(segments))))
    read = pieces(splits(before))
    first, second, last = segments
    joined = replace(first, uuid="joined", end_offset=150, epochs=((7, 0), (8, 100)))
    assert replaced(read, layout(topic(replace(there, segments=(joined, last))))) == []
    later = replace(joined, uuid="later", end_offset=180, epochs=(*joined.epochs, (9, 150)))
    assert replaced(read, layout(topic(replace(there, segments=(later,))))) == []
    assert replaced(pieces(splits(layout(topic(replace(there, segments=(later,)))))), before) == []
    # Others were written from offset 120 on, and compacted with what was left.
    others = replace(joined, uuid="others", epochs=((7, 0), (8, 100), (11, 120)))
    assert replaced(read, layout(topic(replace(there, segments=(others, last))))) == [
        Loss("orders", 0, 100, 180, Cause.CUT_OFF)
    ]
    assert replaced(read, layout(topic(replace(there, segments=(first, replace(second, uuid="x"), last))))) == []


later_partitions = st.one_of(
    st.none(), st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(1, 300), st.integers(1, 5))
)


@given(st.data(), layouts, later_partitions, st.booleans(), st.booleans(), st.integers(1, 1 << 20), st.integers(1, 9))
def test_any_range_on_any_later_layout_gives_each_offset_once_or_names_it(
    data, before, later, recreated, deleted, bytes_max, splits_min
):
    low, high = earliest(before).next, latest(before).next
    start = {key: data.draw(st.integers(low[key], high[key])) for key in low}
    end = {key: data.draw(st.integers(start[key], high[key])) for key in low}
    ranges = Offsets(ids(before), start), Offsets(ids(before), end)
    after = dict(before)
    if later is not None:
        log_start, length, segment_length, count = later
        segments = [segment_length] * (length // segment_length) + [length % segment_length]
        after["orders"] = topic(*[partition(*segments, log_start=log_start)] * count)
    if recreated:
        after["orders"] = replace(after["orders"], uuid="another")
    if deleted:
        del after["bills"]
    if recreated:
        with pytest.raises(SourceError, match="topic orders was deleted and made again"):
            planned(after, *ranges)
        return
    gone = [number for name, number in start if name == "orders" and number not in after["orders"].partitions]
    if gone:
        with pytest.raises(SourceError, match=rf"topic orders has no partition [{''.join(map(str, gone))}] any more"):
            planned(after, *ranges)
        return
    plan = planned(after, *ranges, bytes_max=bytes_max, splits_min=splits_min)
    told = [(loss.topic, loss.partition, offset) for loss in plan.losses for offset in range(loss.start, loss.end)]
    read = [(p.topic, p.partition, offset) for p in pieces(plan.splits) for offset in range(p.start, p.end)]
    wanted = [(*key, offset) for key in start for offset in range(start[key], end[key])]
    assert sorted(told + read) == sorted(wanted)
    assert all((name, number) in dict(partitions(after)) for name, number, _ in read)
    for name, number, offset in read:
        found = after[name].partitions[number]
        assert found.log_start <= offset < found.high_watermark


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
