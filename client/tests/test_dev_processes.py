import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from walrus_client.dev import DevError, NodeOptions, Ports, state
from walrus_client.dev.ports import NoFreePorts, choose_base, is_free
from walrus_client.dev.processes import Process, start_process
from walrus_client.dev.state import ClusterState, NodeState

SLEEP = ["/bin/sleep", "600"]


@pytest.fixture
def sleeper(tmp_path):
    process = start_process(SLEEP, log_file=tmp_path / "log", environment=os.environ)
    yield process
    process.send(signal.SIGKILL)
    assert process.wait(10)
    process.exit_code()


def test_a_process_is_known_until_it_ends(sleeper):
    assert sleeper.is_running()
    assert sleeper.memory_bytes() > 0
    assert not sleeper.wait(0.01)
    assert sleeper.send(signal.SIGTERM)
    assert sleeper.wait(10)
    assert not sleeper.is_running()
    assert sleeper.memory_bytes() is None
    assert sleeper.exit_code() == -signal.SIGTERM
    assert not sleeper.send(signal.SIGKILL)


def test_a_process_whose_first_thread_ended_runs_as_long_as_another_does(tmp_path):
    """The kernel calls such a process a zombie, but its ports are in use still."""
    script = """
import ctypes, pathlib, sys, threading, time

def work():
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)

threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    finish = tmp_path / "finish"
    command = [sys.executable, "-c", script, str(finish)]
    process = start_process(command, log_file=tmp_path / "log", environment=os.environ)
    try:
        deadline = time.monotonic() + 20
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.is_running()
        assert not process.wait(0.01)
        finish.touch()
        assert process.wait(20)
        assert not process.is_running()
    finally:
        process.send(signal.SIGKILL)


def test_a_process_that_got_the_pid_later_is_never_hit(sleeper):
    earlier = Process(sleeper.pid, sleeper.began + "0")
    assert not earlier.is_running()
    assert not earlier.send(signal.SIGKILL)
    assert earlier.wait(10)
    assert earlier.exit_code() is None
    assert sleeper.is_running()


def test_a_process_outlives_the_one_that_started_it(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from walrus_client.dev.processes import start_process;"
        f"p = start_process({SLEEP!r}, log_file=Path({str(tmp_path / 'log')!r}), environment=os.environ);"
        "print(p.pid, p.began)"
    )
    pid, began = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    process = Process(int(pid), began)
    assert process.is_running()
    assert process.send(signal.SIGKILL)
    assert process.wait(10)
    assert process.exit_code() is None  # it is not our child


def test_output_is_appended_to_the_log(tmp_path):
    log = tmp_path / "logs" / "node.log"
    for _ in range(2):
        command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"]
        assert start_process(command, log_file=log, environment={**os.environ, "PYTHONUNBUFFERED": "1"}).wait(20)
    assert log.read_text() == "out\nerr\nout\nerr\n"


def test_a_block_of_ports_is_free_and_always_the_same_for_a_folder(tmp_path):
    base = choose_base(tmp_path, 3)
    assert base == choose_base(tmp_path, 3)
    assert {choose_base(tmp_path / str(number), 3) for number in range(20)} != {base}
    assert all(is_free(port) for port in range(base, base + 30))


def test_the_ports_of_a_cluster_lie_in_the_range_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("WALRUS_DEV_PORTS", "18000-18059")
    assert {choose_base(tmp_path / str(number), 3) for number in range(20)} <= {18_000, 18_030}
    with pytest.raises(NoFreePorts, match="90 ports are wanted, and there are 60 from 18000 on"):
        choose_base(tmp_path, 9)
    for wrong in ("", "18000", "18059-18000", "0-9", "1-65536", "a-b"):
        monkeypatch.setenv("WALRUS_DEV_PORTS", wrong)
        with pytest.raises(NoFreePorts, match="expected a first and a last port, like 20000-25999"):
            choose_base(tmp_path, 3)


def test_a_block_with_a_port_in_use_is_passed_over(tmp_path):
    base = choose_base(tmp_path, 3)
    with socket.create_server(("127.0.0.1", base + 17)):
        assert not is_free(base + 17)
        assert choose_base(tmp_path, 3) != base


def test_the_state_of_a_cluster_is_read_back_as_it_was_written(tmp_path):
    nodes = tuple(
        NodeState(
            name=f"node-{n}",
            node_id=n,
            data_dir=tmp_path / f"node-{n}",
            log_file=tmp_path / f"node-{n}.log",
            ports=Ports.in_block(20_000, n),
            process=Process(4711, "boot/99") if n == 2 else None,
        )
        for n in (1, 2)
    )
    written = ClusterState(nodes=nodes, options=NodeOptions(fsync="5ms", test_controls=True), founded=True)
    state.save(tmp_path, written)
    assert state.load(tmp_path) == written
    assert state.addresses(tmp_path, "text") == []  # none of them runs


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 2}', '{"version": 1, "nodes": [{}]}'])
def test_a_damaged_state_is_refused_with_a_way_out(tmp_path, content):
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(DevError, match=r"cluster\.json"):
        state.load(tmp_path)
    assert state.addresses(tmp_path, "text") == []


PORTS = state.Ports.in_block(20_000, node_id=2)


def test_options_become_flags():
    options = NodeOptions(segment_entries_max=1000, no_auto_create_topics=True)
    assert options.arguments(PORTS) == ["--segment-entries-max", "1000", "--no-auto-create-topics"]
    assert options.updated(NodeOptions(fsync="never")).arguments(PORTS) == [
        "--fsync",
        "never",
        "--segment-entries-max",
        "1000",
        "--no-auto-create-topics",
    ]


def test_further_listeners_get_the_ports_of_a_node_that_are_left():
    options = NodeOptions(text_listener=["a"], kafka_listener=["a,org=acme,admin=off", "b"])
    assert options.arguments(PORTS) == [
        "--text-listener=a=127.0.0.1:20017",
        "--kafka-listener=a=127.0.0.1:20018,org=acme,admin=off",
        "--kafka-listener=b=127.0.0.1:20019",
    ]


@pytest.mark.parametrize(
    ("listeners", "why"),
    [
        (["a", "b", "c", "d"], "3 further listeners, not for 4"),
        (["a=0.0.0.0:1"], "names a place"),
        (["kafka"], "already"),
    ],
)
def test_further_listeners_that_cannot_be_are_refused(listeners, why):
    with pytest.raises(DevError, match=why):
        NodeOptions(kafka_listener=listeners).arguments(PORTS)
