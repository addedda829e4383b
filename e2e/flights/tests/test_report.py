"""What a run leaves behind: the summary and the picture."""

import json

import numpy as np
import pandas as pd
import pytest
from flights import picture, report
from flights.lake import Lake
from flights.proof import Delays, Finding, Records
from flights.report import Phase, Report
from flights.stream import Crash
from walrus_client import Segment, SegmentState


@pytest.fixture
def crash() -> Crash:
    segment = Segment("u", 4, 5, 160_000, 168_000, SegmentState.OPEN, None, (), 0)
    return Crash("node-2", segment, undelivered_bytes=1_000, leaderless_s=1.25)


def made(crash: Crash, *findings: Finding) -> Report:
    phases = [Phase("start brokers", 2.0), Phase("stream, first part", 4.0, 60_000_000)]
    return Report(10, 9, 1, 0, 9, {"node-1": 3, "node-2": 3, "node-3": 3}, crash, phases, findings)


def test_the_summary_has_what_programs_look_for(crash, tmp_path):
    path = tmp_path / "summary.json"
    report.write_summary(made(crash, Finding("all is well", True, "yes")).summary(), path)
    summary = json.loads(path.read_text())
    assert summary["ok"] is True
    assert [summary[name] for name in ("produced", "archived", "lost", "duplicated", "segments")] == [10, 9, 1, 0, 9]
    assert summary["segments_led"] == {"node-1": 3, "node-2": 3, "node-3": 3}
    assert summary["killed"] == {"node": "node-2", "segment": 4, "undelivered_bytes": 1000, "leaderless_s": 1.25}
    assert summary["phases"][0] == {"name": "start brokers", "seconds": 2.0, "mb_per_s": None}
    assert summary["phases"][1] == {"name": "stream, first part", "seconds": 4.0, "mb_per_s": 15.0}


def test_one_finding_that_did_not_hold_fails_the_run(crash):
    assert not made(crash, Finding("a", True, ""), Finding("b", False, "why")).ok


def test_the_picture_is_drawn_even_of_a_carrier_that_never_left(tmp_path):
    months = {str(month): Delays(100, 5.0) for month in range(1, 13)}
    hours = pd.DataFrame({"day": ["2013-01-01", "2013-12-31"], "hour": [5, 23], "flights": 40, "delay_minutes": 3.0})
    none = np.array([], dtype=np.int64)
    lake = Lake(Records(none, none, none, none, none), {"AA": Delays(7, None), "B6": Delays(9, 2.0)}, months, hours)
    path = tmp_path / "flights.png"
    picture.draw(lake, [picture.Strip(0, 10, "node-1"), picture.Strip(10, 15, "node-2")], killed_at=12, path=path)
    assert path.read_bytes().startswith(b"\x89PNG")
