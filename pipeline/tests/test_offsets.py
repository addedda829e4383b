"""The offsets in the checkpoint."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout, layouts, partition, topic
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.offsets import (
    Offsets,
    check_bound,
    check_found,
    check_order,
    check_same_topics,
    latest,
    partitions,
    resolve,
)
from pyspark_walrus.options import EARLIEST, LATEST, Bound

names = st.sampled_from(["orders", "bills", "a.b-c_d"])
some_offsets = st.dictionaries(
    names, st.dictionaries(st.integers(0, 12), st.integers(0, 2**62), min_size=1), min_size=1
)


@given(some_offsets, st.randoms())
def test_offsets_survive_json_and_equal_ones_are_equal_text(by_topic, random):
    entries = [((name, p), offset) for name, ps in by_topic.items() for p, offset in ps.items()]
    ids = {name: f"uuid of {name}" for name in by_topic}
    text = json.dumps(Offsets(ids, dict(entries)).to_json())
    random.shuffle(entries)
    shuffled = Offsets(dict(reversed(ids.items())), dict(entries))
    assert json.dumps(shuffled.to_json()) == text
    assert Offsets.from_json(json.loads(text)) == shuffled
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_the_text_is_the_documented_one():
    offsets = Offsets({"orders": "u-1"}, {("orders", 0): 1200, ("orders", 1): 980})
    assert (
        json.dumps(offsets.to_json())
        == '{"ids": {"orders": "u-1"}, "offsets": {"orders": {"0": 1200, "1": 980}}, "v": 2}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"ids": {}, "offsets": {}, "v": 1}',
        '{"ids": {}, "offsets": {"orders": {"0": 1}}, "v": 2}',
        '{"ids": {"orders": "u"}, "offsets": {"orders": {"0": -1}}, "v": 2}',
        '{"ids": {"orders": "u"}, "offsets": {"orders": {"0": 1.5}}, "v": 2}',
        '{"ids": {"orders": "u"}, "offsets": {"orders": {"x": 1}}, "v": 2}',
        '{"ids": {"orders": "u"}, "offsets": {"orders": [1]}, "v": 2}',
        '{"orders": {"0": 1}}',
    ],
)
def test_offsets_of_something_else_are_refused(text):
    with pytest.raises(SourceError) as caught:
        Offsets.from_json(json.loads(text))
    assert caught.value.reason is Reason.VERSION_UNSUPPORTED


@given(layouts)
def test_earliest_and_latest_are_the_ends_of_each_partition(there):
    low = resolve(Bound(EARLIEST), there)
    high = resolve(Bound(LATEST), there)
    assert high == latest(there)
    for key, found in partitions(there):
        assert (low.next[key], high.next[key]) == (found.log_start, found.high_watermark)


def test_explicit_offsets_may_mix_numbers_and_ends():
    there = layout(topic(partition(50, log_start=10), partition(7), partition(9)))
    bound = Bound(None, ((("orders", 0), 30), (("orders", 1), LATEST), (("orders", 2), EARLIEST)))
    assert resolve(bound, there).next == {
        ("orders", 0): 30,
        ("orders", 1): 7,
        ("orders", 2): 0,
    }


@pytest.mark.parametrize("offset", [9, 61])
def test_an_explicit_offset_outside_of_the_partition_is_refused(offset):
    there = layout(topic(partition(50, log_start=10)))
    with pytest.raises(SourceError) as caught:
        check_bound(Bound(None, ((("orders", 0), offset),)), there, option="startingOffsets")
    assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE
    assert (caught.value.facts["start"], caught.value.facts["end"]) == (10, 60)


def test_explicit_offsets_must_name_every_partition_and_no_other():
    there = layout(topic(partition(5), partition(5)))
    with pytest.raises(SourceError) as caught:
        check_bound(Bound(None, ((("orders", 0), 1), (("orders", 2), 1))), there, option="startingOffsets")
    assert caught.value.reason is Reason.OPTION_INVALID
    assert caught.value.facts["missing"] == [("orders", 1)]
    assert caught.value.facts["unknown"] == [("orders", 2)]


def test_a_topic_that_was_made_again_is_noticed():
    read = latest(layout(topic(partition(5))))
    with pytest.raises(SourceError) as caught:
        check_same_topics(read, layout(topic(partition(50), uuid="u-9")))
    assert caught.value.reason is Reason.TOPIC_RECREATED


def test_a_partition_that_is_gone_is_noticed():
    read = latest(layout(topic(partition(5), partition(5))))
    with pytest.raises(SourceError) as caught:
        check_same_topics(read, layout(topic(partition(5))))
    assert caught.value.reason is Reason.PARTITION_GONE


def test_topics_that_do_not_exist_are_named_and_no_others():
    there = layout(topic(partition(5)))
    check_found(["orders"], there)
    with pytest.raises(SourceError, match="topic bills does not exist") as caught:
        check_found(["orders", "bills"], there)
    assert caught.value.reason is Reason.TOPIC_NOT_FOUND
    assert caught.value.facts["topics"] == ["bills"]
    with pytest.raises(SourceError, match="topics a, b do not exist"):
        check_found(["b", "orders", "a"], there)


def test_a_reversed_range_of_the_users_is_refused():
    start, end = (Offsets({"orders": "u-1"}, {("orders", 0): offset}) for offset in (30, 20))
    check_order(end, start)
    with pytest.raises(SourceError, match="reversed") as caught:
        check_order(start, end)
    assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE
