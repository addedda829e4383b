"""What all tests share.

Where a run has several processes (pytest-xdist), each has ports of its own for its clusters.
"""

import os

FIRST, PORTS = 20_000, 12_000


def pytest_configure() -> None:
    """Gives this process its part of the ports."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        each = PORTS // workers
        first = FIRST + int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) * each
        os.environ["WALRUS_DEV_PORTS"] = f"{first}-{first + each - 1}"
