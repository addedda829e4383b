"""What the tests of the charts share: Helm itself, and every case rendered once."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are modules without packages (importlib mode); what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from rendering import Helm, is_available


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    if not is_available():
        pytest.skip("helm-python-sdk has no wheel for this machine: the charts are not linted and rendered here")
    with Helm() as helm:
        yield helm
