"""Somebody at a Raft port who says what it likes, over a real socket."""

import contextlib
import socket
from typing import Any
from uuid import UUID, uuid4

from members import Member
from walrus_node.metadata.proof import JOIN, RAFT, Dialler, RefusedError
from walrus_node.metadata.wire import (
    FRAME_BYTES_MAX,
    WIRE,
    FrameReader,
    decode_message,
    encode_frame,
    encode_message,
)
from walrus_node.secret import Secrets


class Hostile:
    """A connection to a member. `greet` makes it the disk that it names."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.socket = socket.create_connection(("127.0.0.1", member.port), timeout=10)
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._arrived: list[bytes] = []

    def __enter__(self) -> "Hostile":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def greet(self, disk: UUID, **said: object) -> dict[str, Any]:
        """The member's answer."""
        greeting = {
            **WIRE.told("hello"),
            "cluster": str(self.member.owner.cluster_id),
            "disk": str(disk),
            "process": str(uuid4()),
            "raft_address": "127.0.0.1:1",
            "to": None,
            **said,
        }
        return self.ask(greeting)

    def ask(self, greeting: dict[str, object], secrets: Secrets | None = None) -> dict[str, Any]:
        """Go through a greeting of any kind, with its proofs; the answer, or the refusal."""
        proof = Dialler(secrets or self.member.secrets, JOIN if "join" in greeting else RAFT, greeting)
        self.frame(proof.greeting)
        while True:
            payload = self.receive()
            assert payload is not None, "it closes without an answer"
            try:
                step = proof.hear(payload)
            except RefusedError as refused:
                return {"refused": str(refused)}
            if isinstance(step, dict):
                return step
            if step is not None:
                self.frame(step)

    def say(self, **message: Any) -> None:
        """Send a Raft message; a closed connection swallows it."""
        self.send(encode_message(message))

    def send(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(frame)

    def frame(self, payload: bytes) -> None:
        self.send(encode_frame(payload))

    def receive(self) -> bytes | None:
        """The next frame's payload; `None` at the end of the connection."""
        while not self._arrived:
            try:
                data = self.socket.recv(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._arrived += self._frames.feed(data)
        return self._arrived.pop(0)

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of that kind; others are passed over."""
        while (payload := self.receive()) is not None:
            message = decode_message(payload)
            if message["type"] == kind:
                return message
        raise AssertionError(f"it closes before it says {kind}")

    def wait_closed(self) -> None:
        """Until the member closes the connection."""
        while self.receive() is not None:
            pass
