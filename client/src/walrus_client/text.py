"""The text protocol of a node's client port: `[u32 little-endian length][UTF-8 text]` both ways, one answer each.

What `GET` hands out counts as delivered at the connection's next request or its orderly close; a connection that is
reset puts it back in front.
"""

import contextlib
import json
import re
import socket
import struct
from types import TracebackType
from typing import Any, Self

from walrus_client import errors
from walrus_client.process import Origin
from walrus_client.transport import parse_addresses

FRAME_BYTES_MAX = 16 * 1024 * 1024  # the highest limit that a node can be given; its default is 65,536

_LENGTH = struct.Struct("<I")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Numbers that other servers' first bytes make of a length: gRPC begins with a SETTINGS frame, HTTP/1 with its name.
_HTTP2_SETTINGS_TYPE = 4
_HTTP1 = b"HTTP"


def encode_frame(text: str | bytes) -> bytes:
    """Return the frame that carries *text*."""
    payload = text.encode() if isinstance(text, str) else text
    return _LENGTH.pack(len(payload)) + payload


class TextClient:
    """One connection to one node, the first of *addresses* that takes it. Not to be shared between threads.

    Raises Unavailable when no node can be reached, or the connection breaks, WrongPort when something else answers
    there, and what the node refuses as the error of its kind.
    """

    def __init__(self, addresses: str, *, timeout_s: float = 30.0) -> None:
        self._origin = Origin()
        self.address, self._socket = _connect(parse_addresses(addresses), timeout_s)
        self._answered = False  # once, so that a text port is known to be there

    def register(self, topic: str) -> None:
        """Create a topic with one partition; one that is there is fine. Durable on return."""
        self._ask(f"REGISTER {_checked(topic)}")

    def put(self, topic: str, payload: bytes) -> None:
        """Append one entry, which is durable on return; it must be UTF-8, as all text is.

        Raises OutcomeUnknown when the connection breaks before the answer: sent again, the entry may be there twice.
        """
        _check_utf8(payload)
        command = b"PUT %s %s" % (_checked(topic).encode(), payload)
        if len(command) > FRAME_BYTES_MAX:
            raise _too_large(payload, self.address)
        try:
            self._ask(command)
        except errors.InvalidFrame:
            raise _too_large(payload, self.address) from None
        except _ConnectionLost as lost:
            raise errors.OutcomeUnknown(f"{lost}; the entry may be stored or not") from lost

    def get(self, topic: str) -> bytes | None:
        """Return the next entry of the topic's shared cursor as it was stored; None when there is no new one."""
        answer = self._ask(f"GET {_checked(topic)}")
        if answer == b"EMPTY":
            return None
        return answer.removeprefix(b"OK").removeprefix(b" ")

    def state(self, topic: str) -> Any:
        """Return the segments of a topic and who leads them, as the node's JSON says it."""
        return self._json(f"STATE {_checked(topic)}")

    def metrics(self) -> Any:
        """Return what the node knows of the cluster's metadata (Raft), as its JSON says it."""
        return self._json("METRICS")

    def request(self, command: str) -> str:
        """Send one command as it is and return the answer as it came, `ERR ...` included."""
        answer = self._exchange(command.encode())
        try:
            return answer.decode()
        except UnicodeDecodeError as failure:
            raise errors.CorruptionError(f"{self.address} answered what is not UTF-8: {failure}") from failure

    def close(self) -> None:
        """Close in an orderly way: what was handed out is delivered."""
        self._origin.check()  # a child shares the connection, and would end that of its parent
        # Bytes still unread would turn the close into a reset; there are none after a complete answer.
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._origin.is_here():  # a child that leaves the block of its parent has nothing to close
            self.close()

    def _ask(self, command: str | bytes) -> bytes:
        answer = self._exchange(command)
        if answer.startswith(b"ERR"):
            raise errors.from_text(answer.removeprefix(b"ERR").strip().decode(errors="replace"))
        return answer

    def _json(self, command: str) -> Any:
        answer = self._ask(command)
        try:
            return json.loads(answer)
        except ValueError:
            raise errors.CorruptionError(f"{self.address} answered what is not JSON: {answer[:200]!r}") from None

    def _exchange(self, command: str | bytes) -> bytes:
        self._origin.check()
        try:
            try:
                self._socket.sendall(encode_frame(command))
            except (BrokenPipeError, ConnectionResetError):
                # A node that refuses a frame says why before it closes, while the rest of the frame is on its way.
                return self._answer()
            return self._answer()
        except OSError as failure:
            raise _ConnectionLost(f"{self.address}: {failure}") from failure

    def _answer(self) -> bytes:
        head = self._receive(_LENGTH.size)
        (length,) = _LENGTH.unpack(head)
        if length > FRAME_BYTES_MAX:
            raise _wrong_port(self.address, head + self._peek())
        answer = self._receive(length)
        self._answered = True
        return answer

    def _peek(self) -> bytes:
        """Return what follows an impossible length, as far as it is there; it only serves to name who speaks."""
        with contextlib.suppress(OSError):
            return self._socket.recv(16, socket.MSG_DONTWAIT)
        return b""

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                doubt = "" if self._answered or parts else f"; is it a text port? {_TEXT_PORT}"
                raise _ConnectionLost(f"{self.address} closed the connection before the end of its answer{doubt}")
            parts += part
        return bytes(parts)


class _ConnectionLost(errors.Unavailable):
    """The connection broke after a command was sent, or while it was."""


_TEXT_PORT = "The text protocol is spoken on a node's --client-port, 8080 by default"


def _wrong_port(address: str, head: bytes) -> errors.WrongPort:
    if head.startswith(_HTTP1):
        seen = "it answers in HTTP"
    elif head[:1] == b"\0" and head[3:4] == bytes([_HTTP2_SETTINGS_TYPE]):
        seen = "it answers in gRPC"
    else:
        seen = f"its answer begins with {head[:16]!r}"
    return errors.WrongPort(f"{address} is no Walrus text port: {seen}. {_TEXT_PORT}")


def _checked(topic: str) -> str:
    """Return *topic* if it is a name, so that a blank in it does not become the end of it in a command's line."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise errors.InvalidTopic(
            f"invalid topic name {topic[:64]!r}: expected 1 to 249 characters of letters, digits, '.', '_' and '-',"
            " other than '.' and '..'"
        )
    return topic


def _check_utf8(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError as failure:
        raise errors.InvalidRequest(
            f"the entry is not UTF-8 (byte {payload[failure.start]:#04x} at position {failure.start}), and the text"
            " protocol carries nothing else: `walrus append`, or a producer of the Python client, takes any bytes"
        ) from None


def _too_large(payload: bytes, address: str) -> errors.TooLarge:
    return errors.TooLarge(
        f"an entry of {len(payload):,} bytes is larger than the text port of {address} takes (--frame-bytes-max of the"
        " node, 65,536 by default): `walrus append`, or a producer of the Python client, takes up to 16 MiB"
    )


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
