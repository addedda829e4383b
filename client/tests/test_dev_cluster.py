"""`walrus dev` with real nodes: what a user does with a local cluster, and what may go wrong with it."""

import io
import json
import re
import shutil
import signal
import threading
import time
from dataclasses import replace

import pytest
from walrus_client import Client, ProducerOptions, WalrusError
from walrus_client.cli.__main__ import main
from walrus_client.dev import DevError, NodeOptions, open_cluster, start_cluster, state
from walrus_client.dev.ports import LOOPBACK
from walrus_client.dev.processes import Process, start_process
from walrus_client.text import TextClient


def wait_until(what, condition, *, timeout_s=60.0):
    """Looks until *condition*; a minute is far less than the ten after which a silent voter is replaced in any case."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes that roll over often. Tests leave all of them running."""
    home = tmp_path_factory.mktemp("home")
    options = NodeOptions(segment_entries_max=1000, segment_age_min="0", monitor_check_ms=200)
    cluster = start_cluster(home / ".walrus" / "dev", nodes=3, options=options)
    yield cluster
    cluster.purge()
    assert not cluster.directory.exists()


@pytest.fixture
def walrus(cluster, capsys, monkeypatch):
    """Runs the program where the cluster is: exit code, stdout, stderr."""
    monkeypatch.chdir(cluster.directory.parents[1])
    for name in ("WALRUS_ADDR", "WALRUS_BOOTSTRAP", "WALRUS_DEV_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


def test_commands_find_the_cluster_of_the_folder(walrus):
    assert walrus("register", "found")[:2] == (0, "OK\n")
    assert walrus("put", "found", "hello")[:2] == (0, "OK\n")
    assert walrus("get", "found")[:2] == (0, "hello\n")
    assert walrus("get", "found")[0] == 4
    assert json.loads(walrus("state", "found")[1])["current_segment"] == 0
    assert json.loads(walrus("metrics")[1])["current_leader"] in (1, 2, 3)
    assert re.search(r"^ found +1 ", walrus("topics")[1], re.MULTILINE)
    assert walrus("read", "found")[1] == "0\thello\n"
    assert "[0, 1)" in walrus("segments", "found")[1]


def test_every_node_takes_every_request(cluster):
    for taker in cluster.nodes:
        for giver in cluster.nodes:
            with (
                TextClient(f"{LOOPBACK}:{taker.ports.text}") as put,
                TextClient(f"{LOOPBACK}:{giver.ports.text}") as get,
            ):
                entry = f"from {taker.name} to {giver.name}"
                assert put.request(f"PUT everywhere {entry}") == "OK"
                assert get.request("GET everywhere") == f"OK {entry}"


def test_a_wrong_port_is_named_at_once(walrus, cluster):
    # gRPC's own words came, and after five seconds; a text port was "no text port" without a hint at which one is.
    ports = cluster.nodes[0].ports
    for option, command, wrong, seen in (
        ("--addr", ("put", "t", "x"), ports.grpc, "it answers in gRPC"),
        ("--addr", ("put", "t", "x"), ports.http, "it answers in HTTP"),
        ("--bootstrap", ("topics",), ports.text, "it does not answer in gRPC"),
        ("--bootstrap", ("topics",), ports.http, "it answers in HTTP/1"),
        ("--bootstrap", ("append", "t", "x"), ports.admin, "it speaks gRPC, but has no such service"),
        ("--admin", ("cluster", "status"), ports.grpc, "it speaks gRPC, but has no such service"),
    ):
        code, printed, told = walrus(*command, option, f"{LOOPBACK}:{wrong}")
        assert (code, printed) == (1, "")
        assert seen in told
        assert told.count("\n") == 1
        assert "by default" in told


def test_an_entry_that_a_text_port_does_not_take_has_its_size_and_a_way_named(walrus, cluster, tmp_path, monkeypatch):
    # "invalid frame length", or "Broken pipe" where the node had closed before all of it was sent.
    for size in (100_000, 5_000_000, 17 * 1024 * 1024):
        entries = tmp_path / "entry"
        entries.write_bytes(b"x" * size)
        with entries.open("rb") as given:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given))
            code, printed, told = walrus("put", "large")
        assert (code, printed) == (1, "")
        assert told.startswith(f"walrus: an entry of {size:,} bytes is larger than the text port of ")
        assert "`walrus append`" in told


def test_the_status_shows_every_node(walrus, cluster):
    code, printed, _ = walrus("dev", "status", "--output", "json")
    assert code == 0
    shown = json.loads(printed)
    assert shown["bootstrap"] == cluster.bootstrap
    assert [node["name"] for node in shown["nodes"]] == ["node-1", "node-2", "node-3"]
    assert {node["state"] for node in shown["nodes"]} == {"ready"}
    assert sorted(node["metadata_role"] for node in shown["nodes"]) == ["follower", "follower", "leader"]
    assert all(node["memory_bytes"] > 10_000_000 for node in shown["nodes"])
    assert all(node["segments_led"] >= 0 for node in shown["nodes"])
    assert len(re.findall(r"node-\d +ready", walrus("dev", "status")[1])) == 3


def test_the_cluster_commands_show_nodes_and_status(walrus, cluster):
    code, printed, _ = walrus("cluster", "status", "--output", "json")
    assert code == 0
    shown = json.loads(printed)
    assert shown["ready"] is True
    assert shown["identity"]["node_name"] == "node-1"
    assert shown["metadata"]["voters"] == [1, 2, 3]
    assert shown["storage"]["backend_in_use"] in ("mmap", "direct", "io_uring")
    code, printed, _ = walrus("cluster", "status")
    assert re.search(r"^ metadata voters +1, 2, 3", printed, re.MULTILINE)
    assert re.search(r"^ storage backend +(mmap|direct|io_uring) \(asked: auto\)", printed, re.MULTILINE)
    code, printed, _ = walrus("cluster", "nodes", "--admin", f"{LOOPBACK}:{cluster.nodes[2].ports.admin}")
    assert len(re.findall(r"^ +\d +node-\d +up +(leader|voter) +\w+, (direct|cached)", printed, re.MULTILINE)) == 3


def test_the_cluster_commands_make_and_remove_organisations(walrus, cluster):
    assert walrus("cluster", "orgs", "set", "acme", "--topics-max", "100")[:2] == (0, "organisation acme is set\n")
    acme, default = json.loads(walrus("cluster", "orgs", "list", "--output", "json")[1])
    assert (acme["name"], acme["limits"]["topics_max"], acme["topics"]) == ("acme", 100, 0)
    assert default["name"] == "default"
    assert re.search(r"^ acme +0 +100 +0 ", walrus("cluster", "orgs", "list")[1], re.MULTILINE)
    code, _, told = walrus("cluster", "orgs", "set", "a/b")
    assert code == 1
    assert "is not a name of an organisation" in told
    assert walrus("cluster", "orgs", "remove", "acme")[0] == 0
    assert len(json.loads(walrus("cluster", "orgs", "list", "--output", "json")[1])) == 1


def test_the_cluster_commands_change_settings_that_all_nodes_follow(walrus, cluster):
    code, printed, _ = walrus("cluster", "config", "set", "segments.max_entries=5", "--output", "json")
    assert code == 0
    version = json.loads(printed)["version"]
    assert walrus("cluster", "config", "set", "segments.max_entries=5")[1] == f"settings have version {version}\n"
    try:
        for number in range(15):
            assert walrus("put", "settings", str(number))[0] == 0
        ends = json.loads(walrus("state", "settings")[1])
        assert set(ends["sealed_segments"].values()) == {5}
        assert set(ends["segment_leaders"].values()) == {1, 2, 3}
        shown = json.loads(walrus("cluster", "config", "get", "--output", "json")[1])
        assert shown == {"version": version, "entries": {"segments.max_entries": 5}}
        assert re.search(r"^ segments.max_entries +5", walrus("cluster", "config", "get")[1], re.MULTILINE)
        code, _, told = walrus("cluster", "config", "set", "segments.max_speed=1")
        assert (code, "there is no such setting" in told) == (1, True)
        code, _, told = walrus("cluster", "config", "set", "segments.max_entries=6", "--expect-version", "1")
        assert (code, "read again" in told) == (1, True)
        assert walrus("cluster", "config", "set", "segments.max_entries=many")[0] == 2
    finally:
        assert walrus("cluster", "config", "set", "segments.max_entries=")[0] == 0


def test_replication_changes_by_a_command_and_impossible_wishes_are_refused(walrus):
    def replication(factor: int, write_quorum: int) -> tuple[int, str, str]:
        return walrus("cluster", "replication", "--factor", str(factor), "--write-quorum", str(write_quorum))

    def told() -> dict[str, int]:
        return json.loads(walrus("cluster", "status", "--output", "json")[1])["replication"]

    before = told()
    try:
        code, printed, _ = replication(2, 2)
        assert (code, "2 copies, of which 2 acknowledge" in printed) == (0, True)
        assert told() == {"factor": 2, "write_quorum": 2}
        code, _, problem = replication(2, 3)
        assert (code, "must be between" in problem) == (1, True)
        assert replication(10, 1)[0] == 2
        assert told() == {"factor": 2, "write_quorum": 2}
    finally:
        assert replication(before["factor"], before["write_quorum"])[0] == 0


def test_the_cluster_commands_take_a_node_by_id_name_or_disk(walrus):
    nodes = json.loads(walrus("cluster", "nodes", "--output", "json")[1])
    second = next(node for node in nodes if node["node_id"] == 2)
    assert second["storage"]["synced_writes"] in ("direct", "cached")
    for name in ("2", "node-2", second["disk"]):
        code, printed, _ = walrus("cluster", "drain", name, "--status", "--output", "json")
        assert code == 0
        shown = json.loads(printed)
        assert (shown["node_id"], shown["draining"]) == (2, False)
    code, _, told = walrus("cluster", "can-stop", "node-9")
    assert (code, "no member has the disk 'node-9'" in told) == (1, True)
    code, printed, _ = walrus("cluster", "can-stop", "2", "--output", "json")
    assert code == (0 if json.loads(printed)["can_stop"] else 1)
    code, _, told = walrus("cluster", "remove", "node-9")
    assert (code, "no member has the disk" in told) == (1, True)


def test_a_second_up_changes_nothing_and_other_wishes_are_refused(walrus, cluster):
    before = cluster.nodes
    assert walrus("dev", "up")[0] == 0
    assert cluster.nodes == before
    code, _, told = walrus("dev", "up", "--nodes", "5")
    assert code == 1
    assert "has 3 nodes, not 5" in told
    code, _, told = walrus("dev", "up", "--base-port", "7000")
    assert code == 1
    assert "keeps them" in told
    code, _, told = walrus("dev", "up", "--replication-factor", "1")
    assert (code, "was founded with 3 replicas of a segment and a write quorum of 2" in told) == (1, True)


def test_what_is_appended_is_on_three_nodes_unless_told_otherwise(cluster):
    with Client(cluster.bootstrap) as client:
        client.create_topic("copies")
        (partition,) = client.segments("copies")
    assert len(partition.segments[-1].replicas) == 3


@pytest.mark.parametrize(("nodes", "factor", "quorum"), [(1, 3, None), (3, 4, None), (3, 2, 3)])
def test_more_replicas_than_nodes_are_refused(tmp_path, nodes, factor, quorum):
    options = NodeOptions(replication_factor=factor, write_quorum=quorum)
    with pytest.raises(DevError, match=r"quorum <= replicas <= nodes"):
        start_cluster(tmp_path / "dev", nodes=nodes, options=options)


def test_the_logs_show_their_end(walrus):
    code, printed, _ = walrus("dev", "logs", "node-2", "-n", "1000")
    assert code == 0
    assert "ready" in printed
    assert "node-3: " in walrus("dev", "logs", "-n", "1")[1]
    assert walrus("dev", "logs", "node-9")[0] == 1


def test_a_killed_node_is_seen_and_comes_back_on_its_ports(walrus, cluster):
    node = cluster.nodes[1]
    assert walrus("dev", "kill", "node-2")[:2] == (0, "SIGKILL sent to node-2\n")
    assert not cluster.nodes[1].is_running()
    code, _, told = walrus("dev", "kill", "node-2")
    assert (code, told) == (1, "walrus: node-2 does not run\n")
    shown = json.loads(walrus("dev", "status", "--output", "json")[1])["nodes"]
    assert [node["state"] for node in shown] == ["ready", "stopped", "ready"]
    assert walrus("dev", "restart", "node-2")[0] == 0
    restarted = cluster.nodes[1]
    assert restarted.is_running()
    assert restarted == replace(node, process=restarted.process)


def test_a_node_that_hangs_is_seen_and_can_be_woken(walrus, cluster):
    assert walrus("dev", "kill", "3", "--signal", "STOP")[0] == 0
    try:
        shown = json.loads(walrus("dev", "status", "--output", "json")[1])["nodes"]
        assert [node["state"] for node in shown] == ["ready", "ready", "running"]
    finally:
        assert walrus("dev", "kill", "3", "--signal", "SIGCONT")[0] == 0
    cluster.start()
    assert cluster.status()[2].readiness.ready


def test_a_stale_state_kills_nobody(cluster, tmp_path):
    """After a reboot or a crashed command the recorded pids may belong to others."""
    bystander = start_process(["/bin/sleep", "600"], log_file=tmp_path / "log", environment={})
    try:
        there = state.load(cluster.directory)
        stale = tuple(replace(node, process=Process(bystander.pid, "another boot/1")) for node in there.nodes)
        state.save(tmp_path / "copy", replace(there, nodes=stale))
        copy = open_cluster(tmp_path / "copy")
        assert [seen.running for seen in copy.status()] == [False, False, False]
        assert not copy.kill("node-1")
        assert copy.stop() == []
        assert bystander.is_running()
        with pytest.raises(DevError, match=r"port \d+ of node-1 is in use by another program"):
            copy.start()
    finally:
        bystander.send(signal.SIGKILL)
    assert all(node.is_running() for node in cluster.nodes)


def test_a_producer_outlives_the_death_of_each_node_and_stores_every_record_once(cluster):
    count = 12_000
    options = ProducerOptions(batch_records_max=100, buffer_bytes_max=256 * 1024)
    with Client(cluster.bootstrap) as client:
        client.create_topic("survivor")
        progress = threading.Semaphore(0)

        def kill_each_in_turn():
            for node in cluster.nodes:
                for _ in range(1500):
                    progress.acquire()
                cluster.kill(node.name)
                cluster.restart(node.name)

        killer = threading.Thread(target=kill_each_in_turn)
        with client.producer("survivor", options=options) as producer:
            killer.start()
            for n in range(count):
                producer.send(b"%d" % n)
                progress.release()
            killer.join()
        assert [int(record.value) for record in client.read("survivor")] == list(range(count))
        (partition,) = client.segments("survivor")
        assert len(partition.segments) >= count // 1000


def test_all_nodes_stopped_and_started_again_keep_everything(walrus):
    walrus("put", "kept", "before")
    assert walrus("dev", "down")[:2] == (0, "3 nodes stopped\n")
    code, printed, told = walrus("put", "kept", "nobody is there")
    assert (code, printed) == (3, "")
    assert "start it with `walrus dev up`" in told
    assert walrus("read", "kept")[0] == 3
    assert walrus("dev", "up")[0] == 0
    assert walrus("get", "kept")[:2] == (0, "before\n")


def test_an_emptied_founder_is_brought_back_with_its_vote_by_a_restart(walrus, cluster):
    """It waited for ever, or founded a cluster of its own; its vote came back after ten minutes."""

    def seen():
        return {status.node.name: status.status for status in cluster.status()}

    before = seen()
    cluster.kill("node-1")
    shutil.rmtree(cluster.nodes[0].data_dir)
    code, _, err = walrus("dev", "restart", "node-1")
    assert code == 0, err
    after = seen()
    assert {status["cluster_id"] for status in after.values()} == {before["node-2"]["cluster_id"]}
    lost, back = before["node-1"]["disk"], after["node-1"]["disk"]
    assert back != lost
    members = {status["disk"] for status in after.values()}

    def voters():
        return {member["disk"] for member in seen()["node-2"]["raft"]["members"] if member["voter"]}

    # The lost disk's vote goes first, then the new one, which has caught up, gets it: two changes of the voters.
    wait_until("the new disk has the vote of the lost one", lambda: voters() == members)


def test_the_secret_of_the_cluster_is_its_users_alone_and_changes_need_it(walrus, cluster, monkeypatch):
    assert cluster.secret_file.stat().st_mode & 0o777 == 0o600
    admin = cluster.admin_addresses
    assert walrus("cluster", "nodes", "--admin", admin)[0] == 0
    change = ("config", "set", "--admin", admin, "segments.max_entries=1000")
    code, _, err = walrus("cluster", *change)
    assert (code, "secret" in err) == (1, True)
    assert walrus("cluster", "--secret-file", str(cluster.secret_file), *change)[0] == 0
    secret = cluster.secret_file.read_text().strip()
    assert not any(secret in node.log_file.read_text() for node in cluster.nodes)


def test_a_node_that_cannot_start_says_why(tmp_path):
    with pytest.raises(DevError, match=r"node-1 ended with exit code 2 before it was ready") as failure:
        start_cluster(tmp_path / "dev", nodes=1, options=NodeOptions(fsync="sometimes"))
    assert "sometimes" in str(failure.value)
    cluster = start_cluster(tmp_path / "dev", nodes=1, options=NodeOptions(fsync="never"))
    try:
        assert cluster.status()[0].readiness.ready
    finally:
        cluster.purge()


def test_a_node_that_is_not_ready_in_time_says_what_it_misses(tmp_path):
    with pytest.raises(DevError, match=r"was not ready within 0\.01 s; it still misses: "):
        start_cluster(tmp_path / "dev", nodes=1, ready_timeout_s=0.01)
    assert not open_cluster(tmp_path / "dev").nodes[0].is_running()
    open_cluster(tmp_path / "dev").purge()


def test_without_a_cluster_commands_say_how_to_get_one(walrus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (("status",), ("kill", "node-1"), ("restart", "node-1"), ("logs",)):
        code, _, told = walrus("dev", *command)
        assert code == 1
        assert "walrus dev up" in told
    assert walrus("dev", "down", "--purge")[0] == 0


def test_a_topic_that_rolled_back_metadata_forgot_is_listed_and_taken_back(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")

    def walrus(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    cluster = start_cluster(
        tmp_path / ".walrus" / "dev", nodes=3, options=NodeOptions(segment_entries_max=4, segment_age_min="0")
    )
    try:
        assert "weather" not in walrus("topics")[1]
        cluster.stop()
        metadata = [cluster.directory / node.name / "metadata" for node in cluster.nodes]
        for folder in metadata:
            shutil.copytree(folder, folder.with_suffix(".before"))
        cluster.start()
        with Client(cluster.bootstrap) as client:
            client.create_topic("weather", partitions=2)
            for number in range(10):
                client.append("weather", [b"%d" % number], partition=1)
        cluster.stop()
        for folder in metadata:
            shutil.rmtree(folder)
            folder.with_suffix(".before").rename(folder)
        cluster.start()

        code, printed, _ = walrus("cluster", "recover-topics")
        assert code == 0
        assert re.search(r"^ weather +[0-9a-f-]{36} +1 +\[0, 10\) ", printed, re.MULTILINE)
        assert cluster.kill("node-3")
        code, _, told = walrus("cluster", "recover-topics", "weather")
        assert code == 3, "a disk that was not looked at may have the only records of a partition"
        assert "node 3" in told
        cluster.start()
        assert walrus("cluster", "recover-topics", "weather") == (0, "weather is back: `walrus read weather`\n", "")
        with Client(cluster.bootstrap) as client:
            values = [record.value for record in client.read("weather", partition=1)]
            assert values == [b"%d" % number for number in range(10)]
            # A producer of now has no id of then: what it sends first would be taken for what the other one sent first.
            assert client.append("weather", [b"10"], partition=1).base_offset == 10
            assert [record.value for record in client.read("weather", partition=1, offset=10)] == [b"10"]
        assert walrus("put", "weather", "first")[:2] == (0, "OK\n")
        assert walrus("read", "weather")[1] == "0\tfirst\n"
        assert "weather" not in walrus("cluster", "recover-topics")[1]
        code, _, told = walrus("cluster", "recover-topics", "weather")
        assert code == 1
        assert "no lost topic is called 'weather'" in told
    finally:
        cluster.purge()


def test_each_node_has_the_further_listeners_that_were_asked_for(tmp_path):
    options = NodeOptions(grpc_listener=["acme,org=acme"], text_listener=["guests,admin=off"])
    cluster = start_cluster(tmp_path / "dev", nodes=1, options=options)
    try:
        at = cluster.listeners("node-1")
        assert sorted(at) == ["grpc/acme", "text/guests"]
        with TextClient(at["text/guests"]) as guest, Client(cluster.bootstrap) as client:
            with pytest.raises(WalrusError, match="not allowed here"):
                guest.register("t")
            client.create_topic("t")
            guest.put("t", b"hello")
    finally:
        cluster.purge()
