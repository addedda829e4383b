"""What the node's tests share: named waits with deadlines, and a cluster of stores in this process."""

import sys
from pathlib import Path

# Tests are modules without packages (importlib mode); their helpers lie beside them.
sys.path.insert(0, str(Path(__file__).parent / "support"))
