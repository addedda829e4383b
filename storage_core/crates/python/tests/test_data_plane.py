"""The broker inside the process, as far as the binding goes; what it does is tested in its own crate and end to end."""

import json
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import walrus_core


def config(data_dir: Path, **options: object) -> str:
    identity = {name: str(uuid.uuid4()) for name in ("cluster_id", "disk", "process")}
    return json.dumps({"data_dir": str(data_dir), "node_id": 1, **identity, **options})


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[walrus_core.DataPlane]:
    plane = walrus_core.DataPlane(config(tmp_path))
    yield plane
    plane.stop(1000)


def test_identity_and_addresses_are_those_of_the_config(tmp_path: Path) -> None:
    wanted = config(tmp_path)
    plane = walrus_core.DataPlane(wanted)
    assert plane.identity().items() <= json.loads(wanted).items()
    assert set(plane.addresses()) == {"text", "grpc", "peer"}
    plane.stop(1000)


def test_how_far_the_open_of_the_store_is_can_be_asked(tmp_path: Path) -> None:
    progress = walrus_core.OpenProgress()
    assert progress.percent() is None
    plane = walrus_core.DataPlane(config(tmp_path), progress)
    assert progress.percent() in (None, 100), "an empty store has nothing to look at"
    plane.stop(1000)


def test_a_config_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="colour"):
        walrus_core.DataPlane(config(tmp_path, colour="blue"))


def test_an_answer_that_is_not_understood_is_told(plane: walrus_core.DataPlane) -> None:
    plane.complete(99, '{"Ok": "done"}')
    with pytest.raises(ValueError, match="EOF"):
        plane.set_raft_status("{")


def test_options_that_may_change_do(plane: walrus_core.DataPlane) -> None:
    plane.configure('{"segment_entries_max": 5}')
    with pytest.raises(ValueError, match="data_dir"):
        plane.configure('{"data_dir": "elsewhere"}')


def test_controls_of_tests_are_closed_unless_opened(plane: walrus_core.DataPlane, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="test_controls"):
        plane.test_control("revoke_leases")
    opened = walrus_core.DataPlane(config(tmp_path / "other", test_controls=True))
    opened.test_control("revoke_leases")
    opened.test_control("sync_leases")
    opened.stop(1000)


def test_metrics_are_in_prometheus_format(plane: walrus_core.DataPlane) -> None:
    assert "# TYPE walrus_" in plane.prometheus()


def test_other_threads_run_while_one_polls(plane: walrus_core.DataPlane) -> None:
    polling = threading.Thread(target=plane.poll_events, args=(10, 2000))
    polling.start()
    started, steps = time.monotonic(), 0
    while time.monotonic() - started < 0.3:
        steps += 1
    # With the interpreter lock held by the other thread this one would not come back before it does.
    assert polling.is_alive()
    assert steps > 1000
    plane.stop(0)
    polling.join(timeout=10)
    assert not polling.is_alive()


def test_a_signal_ends_a_poll(plane: walrus_core.DataPlane) -> None:
    class SignalledError(Exception):
        pass

    def handle(*_: object) -> None:
        raise SignalledError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(SignalledError):
            plane.poll_events(10, 60_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_stopped_plane_answers_at_once(plane: walrus_core.DataPlane) -> None:
    plane.stop(1000)
    plane.stop(1000)
    started = time.monotonic()
    assert plane.poll_events(10, 60_000) == []
    assert time.monotonic() - started < 30


def test_publishing_takes_the_state_as_it_is(plane: walrus_core.DataPlane) -> None:
    metadata = walrus_core.Metadata()
    plane.publish(metadata)
    command = {"bootstrap": {"cluster_id": str(uuid.uuid4())}}
    envelope = {"v": 1, "id": str(uuid.uuid4()), "at_ms": 1, "command": command}
    metadata.apply(json.dumps(envelope).encode())
    plane.publish(metadata)
    assert metadata.version == 1


def test_a_port_in_use_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(walrus_core.AddressInUse) as raised:
            walrus_core.DataPlane(config(tmp_path, text_address=address))
        assert raised.value.facts == {"listener": "text", "address": address}
    walrus_core.DataPlane(config(tmp_path)).stop(1000)


def test_a_directory_in_use_is_told(plane: walrus_core.DataPlane, tmp_path: Path) -> None:
    with pytest.raises(walrus_core.Locked) as raised:
        walrus_core.DataPlane(config(tmp_path))
    assert raised.value.reason == "Locked"
