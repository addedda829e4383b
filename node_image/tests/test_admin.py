"""The admin service of real nodes: who they are, how they see the cluster, settings that act in running brokers."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from node_process import NodeProcess
from text_client import ask, say, state
from waiting import wait_until
from walrus_client import Client, errors
from walrus_client.admin import AdminClient, MetadataRole, OrganisationLimits, Replication, Status

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 30.0


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def wait_answers(node: NodeProcess) -> None:
    wait_until("it answers", lambda: node.alive() and node.get("/healthz")[0] == 200)


def set_config(node: NodeProcess, **options: object) -> int:
    with admin(node) as client:
        return client.set_config(**options)  # type: ignore[arg-type]


def entries_of_sealed_segments(node: NodeProcess, topic: str) -> list[int]:
    """In order of the segments."""
    sealed = state(node, topic)["sealed_segments"]
    return [sealed[number] for number in sorted(sealed, key=int)]


def wait_sealed(node: NodeProcess, topic: str, entries: list[int]) -> None:
    wait_until(f"segments of {entries} are sealed", lambda: entries_of_sealed_segments(node, topic) == entries)


def put(node: NodeProcess, topic: str, count: int) -> None:
    for number in range(count):
        assert say(node, f"PUT {topic} {number}") == "OK"


def test_a_node_says_who_it_is_while_it_waits_to_be_admitted(node: Make) -> None:
    waiting = node("--node-name", "orders-7").start()
    wait_answers(waiting)
    with admin(waiting) as client:
        identity = client.identity()
        assert (identity.cluster_id, identity.node_id, identity.node_name) == (None, None, "orders-7")
        status = client.status()
        assert not status.ready
        assert "admission" in status.missing[0]
        assert status.metadata is None
        assert status.storage.backend_in_use is None
        assert status.storage.bytes_total > 0
        with pytest.raises(errors.Unavailable, match="in no cluster yet"):
            client.set_config({"segments.max_entries": 5})
    assert waiting.stop() == 0


def test_status_shows_the_cluster_and_what_this_node_carries(node: Make) -> None:
    first = node("--bootstrap", "--node-name", "orders-0", "--backend", "mmap").start()
    second = node("--join", first.raft_address, "--node-name", "orders-1").start()
    for each in (first, second):
        each.wait_ready()
    assert say(second, "REGISTER seen") == "OK"
    with admin(first) as client, admin(second) as other:
        # Leases are short: what depends on them is looked at in one answer.
        status = wait_until("both are alive", lambda: whole(client.status()))
        assert status.identity == client.identity()
        assert (status.metadata.leader, status.metadata.role) == (1, MetadataRole.LEADER)
        assert status.metadata.voters == (1,)
        assert [(seen.node_id, seen.name, seen.state) for seen in status.nodes] == [
            (1, "orders-0", "up"),
            (2, "orders-1", "up"),
        ]
        assert status.nodes[1].admin_address == f"127.0.0.1:{second.ports['admin']}"
        assert [seen.disk for seen in status.nodes] == [seen.disk for seen in client.members()]
        storage = status.storage
        assert (storage.backend_asked, storage.backend_in_use, storage.reason) == ("mmap", "mmap", None)
        assert 0 < storage.bytes_free <= storage.bytes_total
        room = os.statvfs(first.data)
        kept_for_root = (room.f_bfree - room.f_bavail) * room.f_frsize
        assert storage.bytes_total == room.f_blocks * room.f_frsize - kept_for_root
        assert Path(storage.data_dir) == first.data
        assert other.status().metadata.role is MetadataRole.OBSERVER
        assert client.status().segments_led + other.status().segments_led == 1
        assert status.under_replicated == 0
        assert (status.replication, status.spare_nodes) == (Replication(1, 1), 0)
        assert other.status().spare_nodes is None, "who follows, only the leader knows"


def test_replication_changes_in_a_cluster_that_runs(node: Make) -> None:
    first = node("--bootstrap").start()
    first.wait_ready()
    with admin(first) as client:
        client.set_replication(Replication(3, 2))
        version = client.status().metadata.version
        assert client.status().replication == Replication(3, 2)
        client.set_replication(Replication(3, 2))
        assert client.status().metadata.version == version, "what holds already is not written again"
        for wrong in (Replication(3, 4), Replication(0, 0), Replication(10, 6)):
            with pytest.raises(errors.RejectedError, match="must be between"):
                client.set_replication(wrong)


def test_an_organisation_is_made_limited_and_removed_and_has_listeners_of_its_own(node: Make) -> None:
    first = node(
        "--bootstrap", *("--text-listener", "acme=127.0.0.1:0,org=acme", "--grpc-listener", "acme=127.0.0.1:0,org=acme")
    ).start()
    first.wait_ready()
    with admin(first) as client:
        wait_until("organisations are known", lambda: client.organisations())
        listeners = wait_until("its listeners are told", lambda: client.members()[0].listeners)
        served = [(listener.protocol, listener.org) for listener in listeners]
        assert served == [("kafka", "default"), ("text", "acme"), ("grpc", "acme")]
        _, by_text, by_grpc = (listener.address for listener in listeners)
        assert ask(by_text, "PUT t x").startswith("ERR ")
        client.set_organisation("acme", OrganisationLimits(topics_max=7), expect_version=0)
        (acme, default) = client.organisations()
        assert (acme.name, acme.limits, acme.topics) == ("acme", OrganisationLimits(topics_max=7), 0)
        assert default.limits == OrganisationLimits()
        with pytest.raises(errors.VersionMismatch):
            client.set_organisation("acme", expect_version=0)
        client.set_organisation("acme", expect_version=acme.version)
        assert ask(by_text, "PUT t theirs") == "OK"
        with Client(by_grpc) as theirs, Client(f"127.0.0.1:{first.ports['grpc']}") as ours:
            assert [topic.name for topic in theirs.topics()] == ["t"]
            assert ours.topics() == []
        with pytest.raises(errors.RejectedError, match="has 1 topics"):
            client.remove_organisation("acme")
        assert ask(by_text, "DELETE t") == "OK"
        with pytest.raises(errors.RejectedError, match="not a name of an organisation"):
            client.set_organisation("a/b")
        client.remove_organisation("acme")
        client.remove_organisation("acme")
        assert [found.name for found in client.organisations()] == ["default"]


def whole(status: Status) -> Status | None:
    return status if status.ready and [seen.alive for seen in status.nodes] == [True, True] else None


def test_health_and_reflection_answer(node: Make) -> None:
    waiting = node().start()
    wait_answers(waiting)
    with grpc.insecure_channel(f"127.0.0.1:{waiting.ports['admin']}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="walrus.v1.Admin"), timeout=TIMEOUT_S
        )
        assert check.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([request]), timeout=TIMEOUT_S
        )
        listed = {service.name for service in next(answers).list_services_response.service}
        assert {"walrus.v1.Admin", "grpc.health.v1.Health"} <= listed


def test_a_setting_acts_at_once_after_a_restart_and_on_nodes_that_join_later(node: Make) -> None:
    first = node("--bootstrap").start()
    first.wait_ready()
    put(first, "live", 7)
    set_config(first, entries={"segments.max_entries": 5})
    wait_sealed(first, "live", [7])  # it is over the new limit
    put(first, "live", 5)
    wait_sealed(first, "live", [7, 5])

    assert first.stop() == 0
    first.start()
    first.wait_ready()
    later = node("--join", first.raft_address).start()
    later.wait_ready()
    with admin(first) as client:  # who chooses the leaders must have seen it, too
        wait_until("both are alive", lambda: whole(client.status()))
    put(later, "later", 20)
    wait_sealed(later, "later", [5, 5, 5, 5])
    assert set(state(later, "later")["segment_leaders"].values()) == {1, 2}
    for each in (first, later):
        with admin(each) as client:
            wait_until("it knows", lambda client=client: client.config().entries == {"segments.max_entries": 5})

    set_config(later, entries={}, unset=["segments.max_entries"])
    put(first, "free", 12)
    assert entries_of_sealed_segments(first, "free") == []


def test_the_same_settings_again_are_no_new_version_and_a_stale_one_is_refused(node: Make) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    with admin(founder) as client:
        assert (client.config().version, dict(client.config().entries)) == (0, {})
        version = client.set_config({"segments.max_bytes": 4096}, expect_version=0)
        assert client.set_config({"segments.max_bytes": 4096}) == version
        assert client.status().config_version == version
        with pytest.raises(errors.VersionMismatch) as stale:
            client.set_config({"segments.max_bytes": 8192}, expect_version=0)
        assert (stale.value.expected, stale.value.current) == (0, version)
        for entries, key in (({"segments.max_speed": 1}, "segments.max_speed"), ({"segments.max_bytes": 0}, "bytes")):
            with pytest.raises(errors.InvalidConfig, match=key) as wrong:
                client.set_config(entries)
            assert key in wrong.value.key
        with pytest.raises(errors.InvalidConfig, match=r"segments\.max_age_ms"):
            client.set_config({"segments.max_age_ms": -1})
        assert client.config().version == version


def test_the_log_level_changes_while_it_runs(node: Make) -> None:
    founder = node("--bootstrap", "--log-level", "warn").start()
    founder.wait_ready()
    assert " INFO " not in founder.log.read_text()
    with admin(founder) as client:
        assert client.status().log_level == "warn"
        client.set_log_level("info,walrus_broker=debug")
        assert " INFO " in founder.log.read_text()
        assert client.status().log_level == "info,walrus_broker=debug"
        with pytest.raises(errors.InvalidRequest, match="no log level"):
            client.set_log_level("loud")


def test_every_node_with_the_same_variables_the_named_one_founds(node: Make) -> None:
    """Nodes like the pods of one template: names differ, all else is alike, and any may be the first to run."""
    pods = [node() for _ in range(3)]
    join = ",".join(pod.raft_address for pod in pods)
    for number, pod in reversed(list(enumerate(pods))):
        pod.environment = {
            "WALRUS_NODE_NAME": f"orders-{number}",
            "WALRUS_BOOTSTRAP_NAME": "orders-0",
            "WALRUS_JOIN": join,
            "WALRUS_ADVERTISE_HOST": "localhost",
            "WALRUS_BIND_HOST": "127.0.0.1",
        }
        pod.start()
    for pod in pods:
        pod.wait_ready()
    assert len({pod.status()["cluster_id"] for pod in pods}) == 1
    with admin(pods[1]) as client:
        wait_until("all are listed", lambda: {n.name for n in client.members()} == {"orders-0", "orders-1", "orders-2"})
        assert {seen.grpc_address.partition(":")[0] for seen in client.members()} == {"localhost"}

    for pod in pods:
        assert pod.stop() == 0
        pod.environment = {"WALRUS_ADVERTISE_HOST": "localhost"}
        pod.start()
    for pod in pods:
        pod.wait_ready()
    with admin(pods[2]) as client:
        assert len(client.members()) == 3


def test_a_node_runs_where_only_its_data_directory_can_be_written(node: Make, tmp_path: Path) -> None:
    founder = node("--bootstrap")
    empty = tmp_path / "nowhere"
    empty.mkdir()
    empty.chmod(0o555)
    founder.environment = {"HOME": str(empty / "none"), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    founder.cwd = empty
    founder.start()
    founder.wait_ready()
    assert json.loads(founder.get("/readyz")[1])["ready"]
    assert list(empty.iterdir()) == []
    assert founder.stop() == 0
