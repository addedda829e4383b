"""The growth of a figure, as its curve tells it."""

import pytest
from walrus_bench.curves import Curve


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 1.0, 2.0])
def test_a_power_of_the_size_has_its_exponent(exponent):
    points = [(size, 3.0 * size**exponent) for size in (3, 5, 9, 1_000)]
    assert Curve("case", "s", points).exponent == pytest.approx(exponent)


def test_what_is_nothing_or_one_point_has_no_exponent():
    assert Curve("case", "s", [(3, 0.0), (5, 0.0)]).exponent is None
    assert Curve("case", "s", [(3, 1.0), (5, 0.0)]).exponent is None
    assert Curve("case", "s", [(3, 1.0), (3, 2.0)]).exponent is None
