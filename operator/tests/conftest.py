"""What the operator's tests share lies beside them: modules without packages (importlib mode)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
