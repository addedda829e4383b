"""What the node's tests share: clusters of real node processes on ports of their own."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests are modules without packages (importlib mode); what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from node_process import PORTS, NodeProcess
from walrus_client.dev.ports import is_free

# Below the ports that the system gives to outgoing connections: one of those would take a port while its node is down.
# Each process of a run that has several (pytest-xdist) has a part of them.
_WORKER, _WORKERS = (
    int(os.environ.get(name, default).removeprefix("gw"))
    for name, default in (("PYTEST_XDIST_WORKER", "gw0"), ("PYTEST_XDIST_WORKER_COUNT", "1"))
)
_COUNT = 8_000 // _WORKERS
_FIRST = 12_000 + _WORKER * _COUNT
_next_port = os.getpid() * 97 % _COUNT


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Makes nodes, not started yet, and stops them in the end."""
    nodes: list[NodeProcess] = []

    def make(*flags: str) -> NodeProcess:
        made = NodeProcess(tmp_path / f"node-{len(nodes) + 1}", free_ports(), *flags)
        nodes.append(made)
        return made

    yield make
    for made in nodes:
        if made.process is not None and made.process.poll() is None:
            made.kill()


def free_ports() -> dict[str, int]:
    """Ports that were free a moment ago and that no other node of this run gets, one for each listener."""
    return {name: _free_port() for name in PORTS}


def _free_port() -> int:
    global _next_port
    while True:
        _next_port = (_next_port + 1) % _COUNT
        if is_free(_FIRST + _next_port):
            return _FIRST + _next_port
