"""What a call that changes something proves: that its caller knows the secret of the nodes."""

import hmac
import os
from pathlib import Path

from walrus_client import errors


class SecretFile:
    """The nodes' `--secret-file`, read anew when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[tuple[int, int, int], str] | None = None  # the file's state, and its token

    def token(self) -> str:
        """The token of its first secret; raises InvalidRequest."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - for every call: pathlib's takes twice as long
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._read is None or self._read[0] != state:
                self._read = state, token_of(self._path.read_bytes(), f"secret file {self._path}")
        except OSError as failure:
            raise errors.InvalidRequest(f"secret file {self._path} cannot be read: {failure.strerror}") from None
        return self._read[1]


def token_of(secrets: bytes, source: str) -> str:
    """What the nodes of the first secret take; raises InvalidRequest. Secrets are lines."""
    secret = next(filter(None, (line.strip() for line in secrets.split(b"\n"))), None)
    if secret is None:
        raise errors.InvalidRequest(f"{source} has no secret: one in a line is needed")
    return hmac.digest(secret, b"admin", "sha256").hex()
