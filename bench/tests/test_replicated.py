"""How long nothing was acknowledged, and what is made of a few such times."""

import pytest
from walrus_bench.suites.replicated import _Appended, _quantile


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 2.0), (0.99, 4.0), (0.0, 1.0)])
def test_a_quantile_is_one_of_the_values(quantile, expected):
    assert _quantile([4.0, 1.0, 3.0, 2.0], quantile) == expected


def test_only_a_record_that_was_sent_after_the_failure_ends_the_gap():
    appended = _Appended()
    appended.note(sent=9.0, acknowledged=11.0)
    appended.note(sent=11.5, acknowledged=12.0)
    assert appended.wait_for_one_sent_after(10.0) == 12.0
