"""What the operator's tests share lies beside them, and some run others: modules without packages (importlib mode)."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

sys.path[:0] = [str(TESTS / "support"), str(TESTS)]

LIMIT_S = 180
"""How long all of them may take on two quiet cores. It is told and not asserted, since a busy machine is no mistake;
what keeps to it is that nothing here runs by the clock: examples, passes and places of crashes are counted.
"""


def pytest_terminal_summary(terminalreporter):
    told = [one for reports in terminalreporter.stats.values() for one in reports if isinstance(one, pytest.TestReport)]
    took = [one.duration for one in told if one.nodeid.startswith("operator/tests/")]
    terminalreporter.write_line(
        f"operator/tests: {sum(took):.0f} s; all of them shall take at most {LIMIT_S} s on two quiet cores"
    )
