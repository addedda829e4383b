"""The data set as events, and what is computed from the table."""

import json
import zlib

import numpy as np
import pytest
from flights.proof import Delays
from flights.table import Flights


@pytest.fixture(scope="module")
def flights() -> Flights:
    return Flights.load()


def test_all_flights_are_there_in_time_order(flights):
    assert len(flights) == 336_776
    records = flights.records()
    assert (np.diff(records.timestamp_ms) >= 0).all()
    assert records.timestamp_ms[0] == 1_357_035_300_000  # 2013-01-01 05:15 in New York


def test_an_event_is_the_row_as_json_with_its_place_and_carrier(flights):
    (event,) = flights.events(9_999, 10_000)
    content = json.loads(event.value)
    assert content["id"] == 9_999
    assert content["carrier"].encode() == event.key
    assert set(content) >= {"year", "month", "day", "dep_delay", "flight", "origin", "dest", "time_hour"}
    records = flights.records()
    assert records.checksum[9_999] == zlib.crc32(event.value)
    assert records.timestamp_ms[9_999] == event.timestamp_ms
    assert records.key[9_999].encode() == event.key


def test_slices_join_without_a_seam(flights):
    ids = [json.loads(event.value)["id"] for event in flights.events(9_990, 20_010)]
    assert ids == list(range(9_990, 20_010))


def test_cancelled_flights_count_but_have_no_delay(flights):
    by_carrier = flights.delays("carrier")
    assert sum(group.flights for group in by_carrier.values()) == 336_776
    delays = [json.loads(e.value)["dep_delay"] for e in flights.events(0, len(flights)) if e.key == b"OO"]
    departed = [delay for delay in delays if delay is not None]
    assert len(departed) < len(delays)
    assert by_carrier["OO"] == Delays(len(delays), sum(departed) / len(departed))
