"""The text protocol, as much of it as these tests need."""

import json
import socket
import struct
from typing import Any

from node_process import NodeProcess


def say(node: NodeProcess, command: str) -> str:
    """The answer to one command on a connection of its own."""
    return ask(f"127.0.0.1:{node.ports['client']}", command)


def ask(address: str, command: str) -> str:
    """The answer of a listener to one command on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        request = command.encode()
        connection.sendall(struct.pack("<I", len(request)) + request)
        (length,) = struct.unpack("<I", _receive(connection, 4))
        return _receive(connection, length).decode()


def state(node: NodeProcess, topic: str) -> dict[str, Any]:
    """The JSON of `STATE`."""
    facts: dict[str, Any] = json.loads(say(node, f"STATE {topic}"))
    return facts


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        assert piece, "the connection ended inside an answer"
        data += piece
    return data
