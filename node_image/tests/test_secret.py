"""The shared secret: its file, proofs, tokens. The vectors are those that the broker's peers must make, too."""

import hashlib
import hmac
import logging
import os
from pathlib import Path

import pytest
from walrus_node.files import DataRefusedError
from walrus_node.secret import Secrets

ONE, TWO, THREE = "one secret of a test", "another one of a test", "a third one of a test"


def written(path: Path, *lines: str) -> Path:
    """Replaced as a whole, as Kubernetes and careful users do it."""
    scratch = path.with_name("scratch")
    scratch.write_text("\n".join(lines))
    scratch.replace(path)
    return path


def fits(mine: Secrets, theirs: Secrets) -> bool:
    parts = [b"greeting", b"nonce"]
    return mine.fitting("raft", "dialler", parts, theirs.prove("raft", "dialler", parts)) is not None


def test_the_proof_and_the_token_are_those_of_the_specification(tmp_path: Path) -> None:
    secrets = Secrets(written(tmp_path / "secret", ONE))
    message = b"walrus 1 peer acceptor\n" + b"\x05\0\0\0hello" + b"\0\0\0\0" + b"\x06\0\0\0answer"
    expected = hmac.new(ONE.encode(), message, hashlib.sha256).digest()
    assert secrets.prove("peer", "acceptor", [b"hello", b"", b"answer"]) == expected
    assert expected.hex() == "c89f18135055f4950d0c6fc196821d1bd90da76510e3936e7ee5b77f44ac017a"
    assert secrets.token() == hmac.new(ONE.encode(), b"admin", hashlib.sha256).hexdigest()
    assert secrets.admits(secrets.token())
    assert not secrets.admits(secrets.token().upper())
    assert not secrets.admits("")


@pytest.mark.parametrize("other", [("raft", "acceptor"), ("join", "dialler"), ("peer", "dialler")])
def test_a_proof_is_of_one_purpose_and_one_role(tmp_path: Path, other: tuple[str, str]) -> None:
    secrets = Secrets(written(tmp_path / "secret", ONE))
    parts = [b"greeting", b"nonce"]
    proof = secrets.prove("raft", "dialler", parts)
    assert secrets.fitting("raft", "dialler", parts, proof) == ONE.encode()
    assert secrets.fitting(*other, parts, proof) is None
    assert secrets.fitting("raft", "dialler", [b"greetingn", b"once"], proof) is None
    assert secrets.fitting("raft", "dialler", parts, proof[:-1]) is None


def test_a_secret_is_changed_in_three_steps_without_a_moment_of_misunderstanding(tmp_path: Path) -> None:
    """Add the new one, put it first, take the old one out: each node by itself, in any order within a step."""
    first, second = (Secrets(written(tmp_path / name, ONE)) for name in ("a", "b"))
    steps = [(ONE, TWO), (TWO, ONE), (TWO,)]
    for lines in steps:
        for name in ("a", "b"):
            written(tmp_path / name, *lines)
            assert fits(first, second)
            assert fits(second, first)
            assert second.admits(first.token())
            assert first.admits(second.token())
    written(tmp_path / "a", THREE)
    assert not fits(first, second)


def test_blanks_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    assert fits(Secrets(written(tmp_path / "a", "", f"  {ONE}\t\r", "", "")), Secrets(written(tmp_path / "b", ONE)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "has no secret"),
        (b"short\n", "too short or too long"),
        (b"x" * 2_000, "too short or too long"),
        (b"x" * 70_000, "is too large"),
        (b"\n".join([b"x" * 20] * 17), "is too large"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_bad_file_is_refused_at_the_start_and_ignored_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, message: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataRefusedError, match=message):
        Secrets(path)
    good = Secrets(written(path, ONE))
    token = good.token()
    path.unlink() if content is None else path.write_bytes(content)
    os.utime(path, ns=(1, 1)) if content is not None else None
    with caplog.at_level(logging.INFO):
        assert good.token() == token
        assert good.token() == token
    assert caplog.text.count("stay in force") == 1
    assert ONE not in caplog.text
    written(path, TWO)
    assert good.token() == Secrets(path).token() != token


def test_without_a_file_everybody_fits_and_nothing_is_shared(tmp_path: Path) -> None:
    assert fits(Secrets(None), Secrets(None))
    assert not Secrets(None).are_shared
    assert not fits(Secrets(None), Secrets(written(tmp_path / "a", ONE)))
    assert not fits(Secrets(written(tmp_path / "a", ONE)), Secrets(None))
