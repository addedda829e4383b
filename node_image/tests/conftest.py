"""What the node's tests share: clusters of real node processes on ports of their own."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests are modules without packages (importlib mode); what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from node_process import PORTS, NodeProcess


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
    """Ports that were free a moment ago, one for each listener."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = {name: taken.getsockname()[1] for name, taken in zip(PORTS, sockets, strict=True)}
    for taken in sockets:
        taken.close()
    return ports
