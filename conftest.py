"""What all tests share.

Where a run has several processes (pytest-xdist), each has ports of its own for its clusters, and for its single nodes.
They lie below those that the system gives to outgoing connections: one of those would take the port of a node that is
down.
"""

import os

_OF_NODES = range(12_000, 20_000)
_OF_CLUSTERS = range(20_000, 32_000)


def _part(ports: range) -> str:
    """The part of this process: `FIRST-LAST`."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = len(ports) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    part = ports[number * each : (number + 1) * each]
    return f"{part[0]}-{part[-1]}"


os.environ["WALRUS_TEST_PORTS"] = _part(_OF_NODES)
os.environ["WALRUS_DEV_PORTS"] = _part(_OF_CLUSTERS)
