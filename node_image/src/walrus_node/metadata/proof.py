"""The proof of the shared secret on the Raft port, for both ends: payloads of frames in, payloads out, no sockets.

Four steps: greeting, nonce, the dialler's proof, the acceptor's answer with its proof (`docs/internals/security.md`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from walrus_node.metadata.wire import BadFrameError, decode_greeting
from walrus_node.secret import NONCE_BYTES, PROOF_BYTES, Secrets, new_nonce, prove_with
from walrus_node.words import told

RAFT, JOIN = "raft", "join"
_DIALLER, _ACCEPTOR = "dialler", "acceptor"
_REMEDY = "its --secret-file and this node's share no secret"


class RefusedError(Exception):
    """The acceptor refuses; nobody proves that it was the acceptor."""


class Dialler:
    """The end that speaks first. Raises `BadFrameError` for whatever is out of order."""

    def __init__(self, secrets: Secrets, purpose: str, greeting: Mapping[str, object]) -> None:
        self._secrets = secrets
        self._purpose = purpose
        # What went over the wire so far.
        self._parts = [_encode({**greeting, "nonce": new_nonce().hex()})]

    @property
    def greeting(self) -> bytes:
        """The first payload to send."""
        return self._parts[0]

    def hear(self, payload: bytes) -> bytes | dict[str, Any] | None:
        """The payload to send next (the proof), the proved answer at the end, or nothing yet.

        Raises `RefusedError` if the acceptor refuses.
        """
        said = decode_greeting(payload)
        if len(self._parts) < 3 and said.keys() == {"refused"}:
            raise RefusedError(told(said["refused"]))
        if len(self._parts) == 1:
            _bytes_of(said, "nonce", NONCE_BYTES)
            self._parts.append(payload)
            return _encode({"proof": self._secrets.prove(self._purpose, _DIALLER, self._parts).hex()})
        if len(self._parts) == 2:
            self._parts.append(payload)
            return None
        proof = _bytes_of(said, "proof", PROOF_BYTES)
        if self._secrets.fitting(self._purpose, _ACCEPTOR, self._parts, proof) is None:
            raise BadFrameError(f"its proof does not fit: {_REMEDY}")
        return decode_greeting(self._parts[2])


class Acceptor:
    """The end that answers."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._purpose = RAFT
        self._parts: list[bytes] = []
        self._secret: bytes | None = None

    def hear(self, payload: bytes) -> bytes | dict[str, Any]:
        """The payload to send next (a nonce), or the greeting, once its sender is proved.

        Raises `BadFrameError` for what is out of order or not proved.
        """
        said = decode_greeting(payload)
        if not self._parts:
            _bytes_of(said, "nonce", NONCE_BYTES)
            self._purpose = JOIN if "join" in said else RAFT
            self._parts = [payload, _encode({"nonce": new_nonce().hex()})]
            return self._parts[1]
        if self._secret is not None:
            raise BadFrameError("a greeting has come already")
        proof = _bytes_of(said, "proof", PROOF_BYTES)
        self._secret = self._secrets.fitting(self._purpose, _DIALLER, self._parts, proof)
        if self._secret is None:
            raise BadFrameError(f"the proof does not fit: {_REMEDY}")
        return decode_greeting(self._parts[0])

    def answer(self, answer: Mapping[str, object]) -> tuple[bytes, bytes]:
        """The payloads of the answer and of its proof."""
        assert self._secret is not None, "only who is proved is answered"
        payload = _encode(answer)
        return payload, _encode(
            {"proof": prove_with(self._secret, self._purpose, _ACCEPTOR, [*self._parts, payload]).hex()}
        )


def _encode(greeting: Mapping[str, object]) -> bytes:
    return json.dumps(greeting).encode()


def _bytes_of(said: Mapping[str, Any], name: str, size: int) -> bytes:
    text = said.get(name)
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != size:
        raise BadFrameError(f"a {name} of {size} bytes was expected")
    return found
