"""The text protocol of a node's client port: `[u32 little-endian length][UTF-8 text]` both ways, one answer each.

What `GET` hands out counts as delivered at the connection's next request or its orderly close; a connection that is
reset puts it back in front.
"""

import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

from walrus_client import errors
from walrus_client.transport import parse_addresses

FRAME_BYTES_MAX = 16 * 1024 * 1024  # the highest limit that a node can be given; its default is 65,536

_LENGTH = struct.Struct("<I")


def encode_frame(text: str) -> bytes:
    """Return the frame that carries *text*."""
    payload = text.encode()
    return _LENGTH.pack(len(payload)) + payload


class TextClient:
    """One connection to one node, the first of *addresses* that takes it. Not to be shared between threads.

    Raises Unavailable when no node can be reached, or the connection breaks.
    """

    def __init__(self, addresses: str, *, timeout_s: float = 30.0) -> None:
        self.address, self._socket = _connect(parse_addresses(addresses), timeout_s)

    def request(self, command: str) -> str:
        """Send one command and return the answer as it came, `ERR ...` included."""
        try:
            self._socket.sendall(encode_frame(command))
            (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
            if length > FRAME_BYTES_MAX:
                raise errors.CorruptionError(
                    f"{self.address} announces an answer of {length} bytes: this is no Walrus text port"
                )
            return self._receive(length).decode()
        except OSError as failure:
            raise errors.Unavailable(f"{self.address}: {failure}") from failure
        except UnicodeDecodeError as failure:
            raise errors.CorruptionError(f"{self.address} answered what is not UTF-8: {failure}") from failure

    def close(self) -> None:
        """Close in an orderly way: what was handed out is delivered."""
        # Bytes still unread would turn the close into a reset; there are none after a complete answer.
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise errors.Unavailable(f"{self.address} closed the connection before the end of its answer")
            parts += part
        return bytes(parts)


def _connect(addresses: tuple[str, ...], timeout_s: float) -> tuple[str, socket.socket]:
    failures = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        except OSError as failure:
            failures.append(f"{address}: {failure.strerror or failure}")
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return address, connection
    raise errors.Unavailable("no node can be reached: " + "; ".join(failures))
