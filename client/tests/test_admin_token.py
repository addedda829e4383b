"""The token of a secret file follows the file."""

import hmac
from pathlib import Path

import pytest
from walrus_client import errors
from walrus_client.admin.token import SecretFile


def test_a_secret_that_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"\n  the first secret \nanother one\n")
    secret = SecretFile(path)
    assert secret.token() == hmac.digest(b"the first secret", b"admin", "sha256").hex() == secret.token()
    path.write_bytes(b"the second secret\n")
    assert secret.token() == hmac.digest(b"the second secret", b"admin", "sha256").hex()


def test_a_file_without_a_secret_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret = SecretFile(path)
    with pytest.raises(errors.InvalidRequest, match="cannot be read: No such file"):
        secret.token()
    path.write_bytes(b" \n")
    with pytest.raises(errors.InvalidRequest, match="has no secret: one in a line is needed"):
        secret.token()
