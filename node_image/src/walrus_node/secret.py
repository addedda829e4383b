"""What the nodes of a cluster share: the secrets of a file, and what is made of them.

The exact bytes are in `docs/internals/security.md`; the broker's peers on port 6001 do the same in Rust. Neither
secrets nor what is made of them are ever logged.
"""

from __future__ import annotations

import hmac
import logging
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from walrus_node.files import DataRefusedError

log = logging.getLogger(__name__)

NONCE_BYTES = 32
PROOF_BYTES = 32

_SECRET_BYTES_MIN, _SECRET_BYTES_MAX = 16, 1_024
_SECRETS_MAX = 16
_FILE_BYTES_MAX = 64 * 1024
_LENGTH = struct.Struct("<I")
# What a node without a file has: everybody can make its proofs.
_NOT_SHARED: tuple[bytes, ...] = (b"",)


def new_nonce() -> bytes:
    """Random bytes that no connection had before."""
    return os.urandom(NONCE_BYTES)


class Secrets:
    """The secrets of a file, read anew when it changes. Thread-safe."""

    def __init__(self, path: Path | None) -> None:
        """Read them; raises `DataRefusedError`. Without a path there is one secret, the empty one."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._keep(_NOT_SHARED)
        if path is not None:
            try:
                self._seen = _look(path)
                self._keep(_read(path))
            except (OSError, ValueError) as error:
                raise DataRefusedError(f"--secret-file {path} {_why(error)}") from None

    @property
    def are_shared(self) -> bool:
        """Whether a proof says anything."""
        return self._path is not None

    def prove(self, purpose: str, role: str, parts: Sequence[bytes]) -> bytes:
        """That whoever has *role* on this connection knows the first secret."""
        return _proof(self._current()[0], purpose, role, parts)

    def fitting(self, purpose: str, role: str, parts: Sequence[bytes], proof: bytes) -> bytes | None:
        """The secret by which a proof of the other side is right; `None`: it is not. All are compared."""
        found = [
            secret for secret in self._current() if hmac.compare_digest(_proof(secret, purpose, role, parts), proof)
        ]
        return found[0] if found else None

    def token(self) -> str:
        """What opens the calls of the admin service that change something."""
        self._current()
        return self._tokens[0].decode()

    def admits(self, token: str) -> bool:
        """Whether a token is that of one of the secrets."""
        given = token.encode(errors="replace")
        self._current()
        # A list: all are compared, whichever fits.
        return bool([known for known in self._tokens if hmac.compare_digest(known, given)])

    def _keep(self, secrets: tuple[bytes, ...]) -> None:
        """Know these secrets, and the tokens that are made of them: each call that changes something brings one."""
        self._secrets = secrets
        self._tokens = tuple(_token(secret) for secret in secrets)

    def _current(self) -> tuple[bytes, ...]:
        if self._path is None:
            return self._secrets
        with self._lock:
            try:
                seen = _look(self._path)
                if seen != self._seen:
                    self._seen = seen  # a bad file counts as seen, too: it is told once
                    self._keep(_read(self._path))
                    log.info("--secret-file %s changed: %d secrets", self._path, len(self._secrets))
            except (OSError, ValueError) as error:
                if self._seen is not None or isinstance(error, ValueError):
                    log.error("--secret-file %s %s; the secrets known last stay in force", self._path, _why(error))
                if isinstance(error, OSError):
                    self._seen = None
            return self._secrets


def prove_with(secret: bytes, purpose: str, role: str, parts: Sequence[bytes]) -> bytes:
    """A proof by a secret that was found to fit before."""
    return _proof(secret, purpose, role, parts)


def _proof(secret: bytes, purpose: str, role: str, parts: Sequence[bytes]) -> bytes:
    message = f"walrus 1 {purpose} {role}\n".encode() + b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return hmac.digest(secret, message, "sha256")


def _token(secret: bytes) -> bytes:
    return hmac.digest(secret, b"admin", "sha256").hex().encode()


def _look(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[bytes, ...]:
    """Raises `OSError`, or `ValueError` with what is wrong."""
    with path.open("rb") as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    secrets = tuple(filter(None, (line.strip() for line in content.split(b"\n"))))
    if len(content) > _FILE_BYTES_MAX or len(secrets) > _SECRETS_MAX:
        raise ValueError(f"is too large: {_SECRETS_MAX} secrets and {_FILE_BYTES_MAX} bytes are allowed")
    if not secrets:
        raise ValueError("has no secret: one in a line is needed")
    if not all(_SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX for secret in secrets):
        raise ValueError(
            f"has a secret that is too short or too long: {_SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} bytes"
        )
    return secrets


def _why(error: Exception) -> str:
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
