"""Nodes that share a secret let in and listen to nobody who does not know it; whole nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from node_process import NodeProcess
from waiting import wait_until
from walrus_client import errors
from walrus_client.admin import AdminClient

TIMEOUT_S = 30.0


def test_without_the_secret_nobody_joins_or_changes_anything(
    node: Callable[..., NodeProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger became a voter and a replica; settings, drains and removals took no credential."""
    monkeypatch.delenv("WALRUS_SECRET_FILE", raising=False)
    shared, other = tmp_path / "shared", tmp_path / "other"
    shared.write_text("the secret of this cluster\n")
    other.write_text("the secret of another one\n")
    first = node("--bootstrap", "--secret-file", str(shared)).start()
    first.wait_ready()
    seed = ("--join", first.raft_address)
    second = node(*seed, "--secret-file", str(shared)).start()
    strangers = [node(*seed, "--secret-file", str(other)).start(), node(*seed).start()]
    second.wait_ready()
    for stranger in strangers:
        wait_until("it says why it waits", lambda s=stranger: s.alive() and "share no secret" in s.log.read_text())
        assert stranger.get("/readyz")[0] == 503
    assert len(first.status()["nodes"]) == 2

    admin = f"127.0.0.1:{second.ports['admin']}"
    setting = {"segments.max_entries": 1_000}
    for secret in (None, other):
        with AdminClient(admin, timeout=TIMEOUT_S, secret_file=secret) as client:
            assert len(client.members()) == 2
            for change in (
                lambda: client.set_config(setting),
                lambda: client.remove_member(second.status()["disk"], lost=True),
                lambda: client.transfer_leadership(),
                lambda: client.set_log_level("debug"),
            ):
                with pytest.raises(errors.Unauthenticated, match="--secret-file"):
                    change()
    with AdminClient(admin, timeout=TIMEOUT_S, secret_file=shared) as client:
        assert client.set_config(setting) > 0
    with AdminClient(admin, timeout=TIMEOUT_S, secret_file=other, secrets=shared.read_bytes()) as client:
        assert client.set_config({"segments.max_entries": 1_500}) > 0
    with (
        AdminClient(admin, timeout=TIMEOUT_S, secrets=b"\n") as client,
        pytest.raises(errors.InvalidRequest, match="what was given as secrets has no secret"),
    ):
        client.set_config(setting)

    shared.write_text("the next secret of this cluster\nthe secret of this cluster\n")
    with AdminClient(admin, timeout=TIMEOUT_S, secret_file=shared) as client:
        assert client.set_config({"segments.max_entries": 2_000}) > 0
    for running in (first, second, *strangers):
        assert "the secret of" not in running.log.read_text()
        assert "the next secret" not in running.log.read_text()


def test_a_secret_file_that_cannot_be_used_ends_the_start(node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short\n")
    started = node("--bootstrap", "--secret-file", str(tmp_path / "secret")).start()
    assert started.exit_code() == 1
    assert "16 to 1024 bytes" in started.log.read_text()
