"""One connection to a listener of Kafka's protocol, on which a test says by itself when it asks and when it hears."""

import socket
import struct

_OFFSET_COMMIT, _OFFSET_FETCH, _FIND_COORDINATOR = (8, 2), (9, 1), (10, 0)  # API and version
_ANSWER_TIMEOUT_S = 60


class KafkaConnection:
    """Requests about a group. They wait until the node reads them; answers come in order."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_TIMEOUT_S)

    def send_commit(
        self, group: str, topic: str, partition: int, offset: int, *, member: str = "", generation: int = -1
    ) -> None:
        """OffsetCommit; without a member it is that of somebody who is none."""
        row = struct.pack(">iiqh", 1, partition, offset, -1)
        who = _text(group) + struct.pack(">i", generation) + _text(member)
        self._send(_OFFSET_COMMIT, who + struct.pack(">qi", -1, 1) + _text(topic) + row)

    def send_question(self, group: str, topic: str, partition: int) -> None:
        """OffsetFetch."""
        self._send(_OFFSET_FETCH, _text(group) + struct.pack(">i", 1) + _text(topic) + struct.pack(">ii", 1, partition))

    def commit_code(self) -> int:
        """The error of the next answer, which is one to OffsetCommit; 0 is none."""
        (code,) = struct.unpack(">h", self._receive()[-2:])
        return int(code)

    def told(self) -> tuple[int, int]:
        """The offset and the error of the next answer, which is one to OffsetFetch; the offset has no metadata."""
        offset, _, code = struct.unpack(">qhh", self._receive()[-12:])
        return offset, code

    def coordinator(self, group: str) -> tuple[int, int]:
        """The port at which clients of this listener are told to find who coordinates a group, and the error."""
        self._send(_FIND_COORDINATOR, _text(group))
        answer = self._receive()
        (code,), (port,) = struct.unpack(">h", answer[4:6]), struct.unpack(">i", answer[-4:])
        return port, code

    def close(self) -> None:
        self._socket.close()

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        frame = struct.pack(">hhi", *api, 0) + _text("test") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            assert piece, "the connection ended before the answer"
            data += piece
        return data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
