"""Ports 8088 and 9091 have the limits of every other listener: Rust accepts for both."""

import resource
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from node_process import NodeProcess
from waiting import wait_until

Make = Callable[..., NodeProcess]

TIMEOUT_S = 30.0


def connect(node: NodeProcess, port: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.ports[port]), timeout=TIMEOUT_S)


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of what the node sends."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("flooded", ["client", "grpc", "http", "admin"])
def test_health_is_answered_while_connections_take_all_descriptors(node: Make, flooded: str) -> None:
    """aiohttp took connections to 8088 itself: without a descriptor it accepted nobody, and the probe ended the pod."""
    founder = node("--bootstrap").start()
    founder.wait_ready()
    assert founder.process is not None
    open_now = len(list(Path(f"/proc/{founder.process.pid}/fd").iterdir()))
    limit = open_now + 20
    resource.prlimit(founder.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    silent = [connect(founder, flooded) for _ in range(100)]
    wait_until("it says that it lives", lambda: founder.get("/healthz")[0] == 200, timeout_s=TIMEOUT_S)
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    ("port", "half"), [("http", b"GET /healthz HTTP/1.1\r\nHost: n"), ("admin", b"PRI * HTTP/2.0")]
)
def test_half_a_header_is_cut_off(node: Make, port: str, half: bytes) -> None:
    founder = node("--bootstrap", "--header-timeout", "100ms").start()
    founder.wait_ready()
    with connect(founder, port) as slow:
        slow.sendall(half)
        assert is_closed(slow)


def test_one_connection_more_than_the_option_allows_is_refused_at_every_listener(node: Make) -> None:
    """The limits had no options; at 8088 and 9091 there were none."""
    founder = node("--bootstrap", "--connections-max", "3").start()
    founder.wait_ready()
    for port, spare in (("http", 2), ("admin", 0), ("client", 0), ("grpc", 0), ("peer", 0)):
        taken = [connect(founder, port) for _ in range(3 + spare)]
        with connect(founder, port) as refused:
            assert is_closed(refused)
        for connection in taken:
            connection.close()


def test_nobody_else_can_open_the_sockets_behind(node: Make) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    assert stat.S_IMODE((founder.data / "sockets").stat().st_mode) == 0o700


def test_a_data_directory_may_lie_deeper_than_a_socket_can(node: Make, tmp_path: Path) -> None:
    """Sockets that a killed process left there are no hindrance, either."""
    founder = node("--bootstrap")
    founder.data = tmp_path / ("d" * 120) / "data"
    founder.start()
    founder.wait_ready()
    founder.kill()
    founder.start()
    founder.wait_ready()
