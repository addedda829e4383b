"""The checks of the main job notice what they are there for: one changed record in a thousand is enough."""

from dataclasses import replace

import numpy as np
import pytest
from flights import proof
from flights.proof import Delays, Records

COUNT = 1_000
KEYS = np.array(["AA", "B6", "UA"], dtype=object)


def produced() -> Records:
    ids = np.arange(COUNT)
    return Records(ids, ids, KEYS[ids % 3], ids * 60_000, ids * 7_919 % 1_000_003)


def taken(records: Records, rows) -> Records:
    columns = ("offset", "id", "key", "timestamp_ms", "checksum")
    return Records(**{name: getattr(records, name)[rows] for name in columns})


def changed(column: str, row: int, value: object) -> Records:
    records = produced()
    values = getattr(records, column).copy()
    values[row] = value
    return replace(records, **{column: values})


def failed(found: Records) -> set[str]:
    findings = {
        "once": proof.each_record_once(produced(), found),
        "dense": proof.offsets_dense(found),
        "order": proof.in_order_per_key(found),
        "same": proof.records_unchanged(produced(), found),
    }
    return {name for name, finding in findings.items() if not finding.held}


def test_records_in_any_order_of_rows_hold():
    assert failed(taken(produced(), np.random.default_rng(3).permutation(COUNT))) == set()


@pytest.mark.parametrize("row", [0, 500, COUNT - 1])
def test_a_lost_record_is_noticed(row):
    rows = np.delete(np.arange(COUNT), row)
    found = taken(produced(), rows)
    assert "once" in failed(found)
    assert proof.losses(produced(), found).lost.tolist() == [row]
    assert f"1 lost: {row}" in proof.each_record_once(produced(), found).detail
    assert row == COUNT - 1 or "dense" in failed(found)


@pytest.mark.parametrize("row", [0, 500, COUNT - 1])
def test_a_record_that_was_archived_twice_is_noticed(row):
    found = taken(produced(), np.append(np.arange(COUNT), row))
    assert failed(found) == {"once", "dense", "order"}
    assert proof.losses(produced(), found).duplicated.tolist() == [row]


def test_a_record_that_was_stored_twice_is_noticed():
    rows = np.insert(np.arange(COUNT), 500, 500)
    found = replace(taken(produced(), rows), offset=np.arange(COUNT + 1))
    assert failed(found) == {"once", "order"}


def test_a_record_that_nobody_produced_is_noticed():
    found = changed("id", COUNT - 1, COUNT + 5)
    assert "once" in failed(found)
    assert "1 never produced: 1005" in proof.each_record_once(produced(), found).detail


def test_two_records_of_a_key_that_changed_places_are_noticed():
    rows = np.arange(COUNT)
    rows[[300, 303]] = rows[[303, 300]]
    found = replace(taken(produced(), rows), offset=np.arange(COUNT))
    assert failed(found) == {"order"}


def test_records_of_two_keys_may_change_places():
    rows = np.arange(COUNT)
    rows[[300, 301]] = rows[[301, 300]]
    assert failed(replace(taken(produced(), rows), offset=np.arange(COUNT))) == set()


def test_a_gap_in_the_offsets_is_noticed():
    offsets = np.arange(COUNT)
    offsets[700:] += 1
    found = replace(produced(), offset=offsets)
    assert failed(found) == {"dense"}
    assert proof.offsets_dense(found).detail == "expected 700, found 701"


@pytest.mark.parametrize(("column", "value"), [("key", "ZZ"), ("timestamp_ms", 1), ("checksum", 1)])
def test_a_changed_record_is_noticed(column, value):
    assert "same" in failed(changed(column, 400, value))


def test_an_empty_archive_does_not_hold():
    assert "once" in failed(taken(produced(), np.arange(0)))


def test_aggregates_must_be_equal_to_the_last_digit():
    expected = {"AA": Delays(10, 8.5), "B6": Delays(3, None)}
    assert proof.aggregates_equal("carrier", expected, dict(expected)).held
    for found in (
        {"AA": Delays(10, 8.5)},
        {**expected, "UA": Delays(1, 0.0)},
        {**expected, "AA": Delays(11, 8.5)},
        {**expected, "AA": Delays(10, 8.500000000000002)},
        {**expected, "B6": Delays(3, 0.0)},
    ):
        finding = proof.aggregates_equal("carrier", expected, found)
        assert not finding.held
        assert "expected" in finding.detail


def test_two_runs_that_add_up_hold():
    assert proof.second_run_continued([600, 400], COUNT).held


@pytest.mark.parametrize("runs", [[1000], [1000, 0], [0, 1000], [600, 401], [600, 399]])
def test_runs_that_do_not_continue_each_other_are_noticed(runs):
    assert not proof.second_run_continued(runs, COUNT).held


def test_every_node_must_have_led_and_enough_segments_be_sealed():
    assert proof.segments_rotated(8, {"node-1": 3, "node-2": 3, "node-3": 3}).held
    assert not proof.segments_rotated(7, {"node-1": 3, "node-2": 3, "node-3": 2}).held
    assert not proof.segments_rotated(9, {"node-1": 5, "node-2": 5, "node-3": 0}).held


def test_a_kill_without_load_or_of_a_bystander_does_not_count():
    assert proof.killed_under_load(1, killed_leader=True).held
    assert not proof.killed_under_load(0, killed_leader=True).held
    assert not proof.killed_under_load(1, killed_leader=False).held


REPLICAS = {"s1": ["a", "b"], "s2": ["b", "c"]}
COPIES = {"a": {"s1": "1"}, "b": {"s1": "1", "s2": "2"}, "c": {"s2": "2"}}


def test_copies_that_are_the_same_everywhere_hold():
    finding = proof.copies_whole(REPLICAS, COPIES, "b")
    assert (finding.held, finding.detail) == (True, "4 copies of 2 sealed segments, 2 on b")


@pytest.mark.parametrize(
    ("changed", "named"), [({"c": {"s2": "other"}}, "1 differ, as s2"), ({"c": {}}, "1 differ, as s2, lacking on c")]
)
def test_a_copy_that_differs_or_lacks_is_noticed(changed, named):
    finding = proof.copies_whole(REPLICAS, COPIES | changed, "b")
    assert not finding.held
    assert named in finding.detail


def test_copies_that_could_not_be_read_prove_nothing_and_say_why():
    finding = proof.copies_unread("node-2 does not answer")
    assert (finding.held, finding.detail) == (False, "node-2 does not answer")


def test_a_killed_broker_without_copies_proves_nothing():
    assert not proof.copies_whole(REPLICAS, COPIES, "d").held
