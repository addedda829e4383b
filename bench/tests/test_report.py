"""Goals, limits and the rows of a report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from walrus_bench.goals import GOALS, PROBED_LIMITS, known_limits
from walrus_bench.limits import limit_rows
from walrus_bench.plot import draw
from walrus_bench.report import Report, load_facts, middle_facts, rows
from walrus_bench.sampling import Sample, Series, Subject, Taken

ROW_KEYS = {"case", "system", "backend", "value", "unit", "limit", "ratio", "goal", "met"}


def series(case: str, system: str, backend: str, *values: float, phase: str = "", **facts: float) -> Series:
    subject = Subject(case, system, backend, lambda: Sample(0.0, ""))
    return Series(subject, [Taken(Sample(value, "", facts), others_cores=0.01) for value in values], phase)


def storage_report(*, direct: float, mmap: float) -> Report:
    all_series = [
        series("durable_4k", "probe", "", 10_000, 12_000, 14_000, p50_us=80.0),
        series("durable_4k", "fio", "", 12_400, p50_us=79.0),
        series("durable_1_caller", "walrus", "mmap", mmap, mmap, mmap),
        series("durable_1_caller", "peer", "", 11_000),
        series("durable_1_caller", "walrus", "direct", direct - 100, direct, direct + 300, p50_us=90.0),
    ]
    return Report(
        suite="storage",
        taken_at="2026-01-01T00:00:00+00:00",
        quick=False,
        commit="abc",
        machine={"cores": 2},
        settings={"rounds": 3},
        load=load_facts(all_series),
        notes=(),
        limits=limit_rows(all_series),
        rows=rows(all_series),
    )


def test_a_row_is_the_median_over_the_rounds_and_its_ratio_to_the_limit() -> None:
    row = storage_report(direct=11_400, mmap=3_000).rows[2]
    assert (row.case, row.system, row.backend) == ("durable_1_caller", "walrus", "direct")
    assert (row.value, row.minimum, row.maximum, row.rounds) == (11_400, 11_300, 11_700, 3)
    assert (row.limit, row.ratio) == (12_000, 0.95)
    assert (row.goal, row.met) == ("ratio >= 0.95", True)
    assert row.facts["p50_us"] == 90.0


def test_each_round_is_held_against_what_the_disk_was_in_that_round_of_its_phase() -> None:
    (row,) = rows(
        [
            series("durable_4k", "probe", "", 1.0, 1.0, 1.0, phase="before", p50_us=9.0),
            series("durable_4k", "probe", "", 10.0, 20.0, 40.0, phase="appends", p50_us=9.0),
            series("durable_1_caller", "walrus", "direct", 9.0, 19.0, 20.0, phase="appends"),
        ]
    )
    assert (row.value, row.limit, row.ratio) == (19.0, 20.0, 0.9), "not 20 / 20"


def test_a_phase_that_does_not_probe_a_limit_takes_that_of_the_run() -> None:
    (row,) = rows(
        [
            series("durable_4k", "probe", "", 10.0, 20.0, 60.0, phase="before", p50_us=9.0),
            series("durable_1_caller", "walrus", "direct", 9.0, 19.0, phase="appends"),
        ]
    )
    assert (row.limit, row.ratio) == (20.0, 0.7)


@pytest.mark.parametrize(
    ("direct", "mmap", "met"), [(11_500, 3_000, True), (5_000, 11_300, False), (5_000, 11_400, True)]
)
def test_a_case_is_met_when_its_best_backend_meets_it(direct: float, mmap: float, met: bool) -> None:
    assert storage_report(direct=direct, mmap=mmap).cases_met == {"durable_1_caller": met}


def test_a_request_that_is_written_and_answered_has_both_limits() -> None:
    limits = known_limits({"durable_4k_p50": 80.0, "loopback_round_trip": 20.0})
    assert limits["durable_round_trip_p50"] == 100.0


def test_the_probe_is_held_against_fio() -> None:
    by_name = {row.limit: row for row in storage_report(direct=9_000, mmap=3_000).limits}
    rate, time = by_name["durable_4k"], by_name["durable_4k_p50"]
    assert rate.probe_to_fio == pytest.approx(12_000 / 12_400)
    assert time.probe_to_fio == pytest.approx(79 / 80), "of a time, less is better"
    assert rate.agrees
    assert time.agrees


def test_without_fio_the_limit_stands_alone() -> None:
    (row,) = limit_rows([series("record_copy", "probe", "", 160.0)])
    assert (row.fio, row.probe_to_fio, row.agrees) == (None, None, None)


def test_a_case_without_its_limit_has_no_ratio() -> None:
    idle, copy = rows([series("idle_cpu", "walrus", "", 5.0), series("nosync_1_caller", "walrus", "mmap", 240.0)])
    assert (idle.limit, idle.ratio, idle.met, idle.goal) == (None, None, True, "value <= 8 % of a core")
    assert (copy.limit, copy.ratio, copy.met) == (None, None, True)


def test_a_backend_is_held_against_another_round_by_round() -> None:
    made = rows(
        [
            series("broker_append_durable", "walrus", "mmap", 90.0, 110.0, 200.0),
            series("broker_append_durable", "walrus", "direct", 100.0, 100.0, 100.0),
        ]
    )
    row = made[-1]
    assert (row.case, row.backend, row.value, row.unit) == ("mmap_over_direct", "mmap", 1.1, "x")
    assert (row.minimum, row.maximum, row.rounds, row.goal, row.met) == (0.9, 2.0, 3, "value >= 0.95 x", True)
    (alone,) = rows([series("broker_append_durable", "walrus", "mmap", 90.0)])
    assert alone.case == "broker_append_durable", "no comparison with a backend that was not measured"


def test_a_system_is_held_against_another_one_round_by_round() -> None:
    made = rows(
        [
            series("kafka_fetch", "walrus", "auto", 300.0, 100.0, 220.0),
            series("kafka_fetch", "apache", "", 100.0, 200.0, 200.0),
        ]
    )
    row = made[-1]
    assert (row.case, row.system, row.value, row.met) == ("kafka_fetch_over_apache", "walrus", 1.1, True)
    assert (row.minimum, row.maximum) == (0.5, 3.0)


def test_a_case_without_a_bound_is_shown_and_counts_for_nothing() -> None:
    probe = series("group_commit_8", "probe", "", 20_000.0)
    (row,) = rows([probe, series("durable_8_logs_100b", "walrus", "auto", 15_000.0)])
    assert (row.limit, row.ratio, row.goal, row.met) == (20_000.0, 0.75, "", False)
    assert replace(storage_report(direct=11_400, mmap=3_000), rows=[row]).cases_met == {}


def test_a_quantile_is_taken_over_the_observations_of_all_rounds() -> None:
    subject = Subject(
        "kill_to_ack", "walrus", "auto", lambda: Sample(0.0, ""), {"kill_to_ack_p50": 0.5, "kill_to_ack_p99": 0.99}
    )
    rounds = [Sample(1.0, "s", {}, (0.1, 0.2, 0.3)), Sample(1.0, "s", {}, (0.4, 9.0))]
    p50, p99 = rows([Series(subject, [Taken(sample, 0.0) for sample in rounds])])
    assert (p50.case, p50.value, p50.met) == ("kill_to_ack_p50", 0.3, True)
    assert (p99.case, p99.value, p99.met) == ("kill_to_ack_p99", 9.0, False)
    assert (p99.minimum, p99.maximum, p99.rounds) == (0.1, 9.0, 2)


def test_a_limit_that_was_probed_in_several_phases_is_one_limit() -> None:
    (row,) = limit_rows([series("record_copy", "probe", "", 160.0), series("record_copy", "probe", "", 180.0, 200.0)])
    assert (row.value, row.minimum, row.maximum) == (180.0, 160.0, 200.0)


def test_a_durable_stream_is_bound_by_the_slower_of_network_and_disk() -> None:
    assert known_limits({"loopback_stream": 2048.0, "durable_bandwidth": 4096.0})["durable_stream"] == 2_000_000
    assert "durable_stream" not in known_limits({"loopback_stream": 2048.0})


def test_every_goal_is_held_against_a_limit_that_is_known() -> None:
    known = known_limits(dict.fromkeys(PROBED_LIMITS, 1.0))
    assert {goal.limit for goal in GOALS.values()} - {None} <= known.keys()


def test_facts_are_medians_of_numbers_and_the_last_of_texts() -> None:
    samples = [Sample(1.0, "", {"p50_us": us, "kind": kind}) for us, kind in ((3.0, "a"), (9.0, "b"), (4.0, "c"))]
    assert middle_facts(samples) == {"p50_us": 4.0, "kind": "c"}


def test_the_report_is_json_with_the_promised_keys_and_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "results" / "storage.json"
    storage_report(direct=11_400, mmap=3_000).write(path)
    document = json.loads(path.read_text())
    assert all(row.keys() >= ROW_KEYS for row in document["rows"])
    assert document["cases_met"] == {"durable_1_caller": True}
    assert [file.name for file in path.parent.iterdir()] == ["storage.json"]


def test_the_picture_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    draw(storage_report(direct=9_000, mmap=3_000), tmp_path / "storage.png")
    assert (tmp_path / "storage.png").read_bytes().startswith(b"\x89PNG")
