"""What the operator's tests share lies beside them, and some run others: modules without packages (importlib mode)."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent

sys.path[:0] = [str(TESTS / "support"), str(TESTS)]
