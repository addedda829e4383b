"""Where a consumer begins, as a person writes it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from walrus_client import OffsetPlace
from walrus_client.cli.points import AtOffset, Since, parse_point

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=timezone(timedelta(hours=1)))
NOW_MS = int(NOW.timestamp() * 1000)


def test_places_and_offsets_are_told_from_times():
    assert parse_point("earliest", NOW) is OffsetPlace.EARLIEST
    assert parse_point("latest", NOW) is OffsetPlace.LATEST
    assert parse_point("1500", NOW) == AtOffset(1500)
    assert parse_point("-10", NOW) == AtOffset(-10)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [("2h", 7_200_000), ("90s", 90_000), ("1d12h", 129_600_000), ("5m", 300_000), ("1w250ms", 604_800_250)],
)
def test_a_duration_counts_back_from_now(text, ago_ms):
    assert parse_point(text, NOW) == Since(NOW_MS - ago_ms)


def test_a_time_without_a_zone_is_local_and_one_with_a_zone_is_there():
    at = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
    assert parse_point("2026-11-27T10:30", NOW) == Since(int(at.timestamp() * 1000))
    assert parse_point("2026-11-27T09:30:00Z", NOW) == Since(int(at.timestamp() * 1000))
    assert parse_point("2026-11-27T09:30:00.250+00:00", NOW) == Since(int(at.timestamp() * 1000) + 250)


@pytest.mark.parametrize("text", ["", "yesterday", "2 h", "h", "1y", "max timestamp", "2026-13-01", "--1"])
def test_what_is_none_of_them_is_refused_with_what_may_be_written(text):
    with pytest.raises(ValueError, match="duration back such as"):
        parse_point(text, NOW)
