"""What the suite `spark` measures, and what it is held against."""

from typing import Any, cast

from walrus_bench.goals import GOALS, PROBED_LIMITS
from walrus_bench.sampling import PROBE, Sample
from walrus_bench.suites.spark import Rows, subjects

ROWS = Rows(cast("Any", None), 0)  # nothing is measured here


def test_each_subject_has_a_goal_or_is_the_limit_of_one() -> None:
    found = subjects(
        sealed=ROWS, opened=ROWS, small=ROWS, ready=ROWS, ready_small=ROWS, archived=lambda: Sample(0.0, "")
    )
    measured = {subject.case for subject in found if subject.system == "walrus"}
    assert measured == {case for case in GOALS if case.startswith("spark_")}
    probes = {subject.case for subject in found if subject.system == PROBE}
    assert probes == {name for name in PROBED_LIMITS if name.startswith("spark_")}
    limits = [GOALS[case].limit for case in measured]
    assert probes == {limit for limit in limits if limit is not None}
    assert all(GOALS[case].bound is not None for case in measured)
