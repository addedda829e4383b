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

_FIRST, _LAST = map(int, os.environ["WALRUS_TEST_PORTS"].split("-"))  # this process's, see the conftest of all tests
_COUNT = _LAST - _FIRST + 1
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
