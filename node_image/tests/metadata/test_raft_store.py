"""The contract of `MetadataStore`, on members with real sockets and files."""

import errno
import os
import socket
import statistics
import struct
import time
from pathlib import Path
from uuid import uuid4

import pytest
from hostile import Hostile
from ledger import address, entry
from members import TIMEOUT_S, Cluster, Member, cluster_of
from waiting import wait_until
from walrus_node.files import DataRefusedError
from walrus_node.metadata.raft import Compaction
from walrus_node.metadata.store import Applied, Rejected, Unknown
from walrus_node.metadata.wire import WIRE, Versions

QUIET_S = 3.0


def converge(cluster: Cluster, names: list[str]) -> None:
    for member in cluster.members:
        if member.store is not None:
            wait_until("it has all", lambda member=member: list(member.running.read()) == names)


def test_three_members_commit_and_all_read_it(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        for place, member in enumerate(cluster.members):
            outcome = member.write(f"from {place}")
            assert isinstance(outcome, Applied)
            assert member.running.read()[-1] == f"from {place}", "the proposer reads it when it hears of it"
        converge(cluster, ["from 0", "from 1", "from 2"])


def test_a_rejected_command_is_rejected_everywhere(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        for member in cluster.members:
            assert isinstance(member.write(""), Rejected)
        converge(cluster, [])


def test_a_commit_takes_at_most_50_ms_on_loopback(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        for member in (cluster.leader(), cluster.followers()[0]):
            seconds = []
            for number in range(60):
                start = time.monotonic()
                assert isinstance(member.write(str(number)), Applied)
                seconds.append(time.monotonic() - start)
            assert statistics.median(seconds) <= 0.05


def test_an_idle_cluster_sleeps(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3):
        used = time.process_time()
        time.sleep(QUIET_S)  # the measured span, nothing is waited for
        assert (time.process_time() - used) / QUIET_S < 0.03


def test_the_majority_goes_on_when_the_leader_is_gone(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        assert isinstance(cluster.leader().write("before"), Applied)
        gone = cluster.leader()
        gone.stop()
        outcome = cluster.leader().write("after")
        assert isinstance(outcome, Applied)
        converge(cluster, ["before", "after"])
        gone.start()
        converge(cluster, ["before", "after"])


def test_a_minority_commits_nothing(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        leader = cluster.leader()
        for member in cluster.followers():
            member.stop()
        outcome = leader.running.propose(entry("alone"), timeout=1.0).result()
        assert isinstance(outcome, Unknown)
        assert leader.running.read() == ()
        wait_until("it no longer calls itself leader", lambda: not leader.running.status().is_leader)
        assert isinstance(leader.running.barrier(timeout=0.3).result(), Unknown)


def test_a_follower_whose_disk_is_full_stops_and_says_so_and_is_back_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed write was once taken for a failed connection: the member stayed, and refused everything for good."""
    with cluster_of(tmp_path, 3) as cluster:
        assert isinstance(cluster.leader().write("before"), Applied)
        follower, pwrite = cluster.followers()[0], os.pwrite

        def full(file: int, content: bytes, position: int) -> int:
            if Path(f"/proc/self/fd/{file}").readlink().is_relative_to(follower.directory):
                raise OSError(errno.ENOSPC, "No space left on device")
            return pwrite(file, content, position)

        monkeypatch.setattr("os.pwrite", full)
        wait_until("the others commit", lambda: isinstance(cluster.leader().write("meanwhile"), Applied))
        wait_until("it says why it stops", lambda: "No space" in (follower.running.status().failure or ""))
        follower.stop()
        monkeypatch.undo()
        follower.start()
        converge(cluster, list(cluster.leader().running.read()))


def test_an_unknown_outcome_becomes_known_by_a_barrier(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        leader = cluster.leader()
        others = cluster.followers()
        for member in others:
            member.stop()
        assert isinstance(leader.running.propose(entry("late"), timeout=0.2).result(), Unknown)
        for member in others:
            member.start()
        assert isinstance(leader.running.barrier(timeout=TIMEOUT_S).result(), Applied)
        assert leader.running.read() in ((), ("late",))
        converge(cluster, list(leader.running.read()))


def test_watch_returns_the_next_state(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        store = cluster.members[0].running
        version = store.status().version
        assert store.watch(version, timeout=0.05) is None
        future = store.propose(entry("seen"), timeout=TIMEOUT_S)
        assert store.watch(version, timeout=TIMEOUT_S) == ("seen",)
        assert isinstance(future.result(), Applied)


def test_all_members_restarted_at_once_come_back_with_everything(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        for number in range(20):
            assert isinstance(cluster.members[number % 3].write(str(number)), Applied)
        for round_number in range(2):
            for member in cluster.members:
                member.stop()
            for member in cluster.members:
                member.start()
            assert isinstance(cluster.leader().write(f"round {round_number}"), Applied)
        converge(cluster, [*map(str, range(20)), "round 0", "round 1"])


def test_members_find_each_other_at_new_addresses(tmp_path: Path) -> None:
    """All addresses change while all are down; one seed is enough, as a restart passes `--join` again."""
    with cluster_of(tmp_path, 3) as cluster:
        assert isinstance(cluster.leader().write("before"), Applied)
        for member in cluster.members:
            member.stop()
            member.port = 0
        cluster.members[0].start()
        for member in cluster.members[1:]:
            member.start(seeds=(cluster.members[0].at,))
        for member in cluster.members:
            told = cluster.leader().running.propose(address(member.disk, member.at), timeout=TIMEOUT_S).result()
            assert isinstance(told, Applied)
        converge(cluster, ["before"])


def test_a_late_joiner_catches_up_from_a_snapshot(tmp_path: Path) -> None:
    compaction = Compaction(entries=50, entries_kept=10)
    with cluster_of(tmp_path, 1, compaction) as cluster:
        futures = [cluster.members[0].running.propose(entry(str(n)), timeout=TIMEOUT_S) for n in range(400)]
        assert all(isinstance(future.result(), Applied) for future in futures)
        for _ in range(2):
            cluster.add_voter()
        converge(cluster, [str(n) for n in range(400)])
        assert cluster.members[2].running.status().voters() == {member.disk for member in cluster.members}


def test_a_member_that_slept_through_a_compaction_catches_up(tmp_path: Path) -> None:
    compaction = Compaction(entries=50, entries_kept=10)
    with cluster_of(tmp_path, 3, compaction) as cluster:
        sleeper = cluster.followers()[0]
        sleeper.stop()
        awake = cluster.leader()
        futures = [awake.running.propose(entry(str(n)), timeout=TIMEOUT_S) for n in range(300)]
        assert all(isinstance(future.result(), Applied) for future in futures)
        sleeper.start()
        converge(cluster, [str(n) for n in range(300)])
        assert (sleeper.directory / "journal").stat().st_size < 20_000
        sleeper.stop()
        sleeper.start()
        assert isinstance(cluster.leader().write("last"), Applied)
        converge(cluster, [*(str(n) for n in range(300)), "last"])


def test_a_snapshot_of_many_pieces_arrives(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1, Compaction(entries=4, entries_kept=0)) as cluster:
        names = [f"{n}" + "x" * 300_000 for n in range(8)]
        for name in names:
            assert isinstance(cluster.members[0].write(name), Applied)
        cluster.add()
        converge(cluster, names)


def test_an_observer_proposes_but_does_not_vote(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        observer = cluster.add()
        assert observer.running.status().state == "observer"
        assert isinstance(observer.write("from aside"), Applied)
        assert cluster.members[0].running.read() == ("from aside",)


def test_voters_change_one_at_a_time_and_back(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        leader, (leaves, stays) = cluster.leader(), cluster.followers()
        outcome = stays.running.add_voter(uuid4(), timeout=TIMEOUT_S).result()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "not_leader"
        assert isinstance(leader.running.remove_voter(leader.disk, timeout=TIMEOUT_S).result(), Rejected)
        assert isinstance(leader.running.remove_voter(leaves.disk, timeout=TIMEOUT_S).result(), Applied)
        wait_until("it observes", lambda: leaves.running.status().state == "observer")
        assert isinstance(leaves.write("still here"), Applied)


def test_a_damaged_journal_refuses_the_start(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        member = cluster.members[0]
        assert isinstance(member.write("a"), Applied)
        member.stop()
        path = member.directory / "journal"
        content = bytearray(path.read_bytes())
        content[-8] ^= 1
        path.write_bytes(content)
        with pytest.raises(DataRefusedError, match="fails its checksum"):
            member.start()


def test_a_missing_snapshot_refuses_the_start(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        member = cluster.members[0]
        member.stop()
        (member.directory / "snapshot").unlink()
        with pytest.raises(DataRefusedError, match="is missing"):
            member.start()


def test_another_cluster_and_an_unknown_disk_are_refused(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        home = cluster.members[0]
        stranger = Member(cluster.cluster_id, tmp_path / "stranger")
        foreigner = Member(uuid4(), tmp_path / "foreigner")
        for member in (stranger, foreigner):
            member.prepare_to_join()
            member.start({home.disk: home.at})
            try:
                assert isinstance(member.running.propose(entry("no"), timeout=0.5).result(), Unknown)
            finally:
                member.stop()
        assert home.running.read() == ()


def test_strangers_cannot_take_the_port_hostage(tmp_path: Path) -> None:
    """Huge lengths, half greetings and silence: closed, and the member goes on."""
    with cluster_of(tmp_path, 1) as cluster:
        home = cluster.members[0]
        huge = socket.create_connection(("127.0.0.1", home.port))
        huge.sendall(struct.pack("<II", 2**31 - 1, 0) + b"x" * 1_000)
        huge.settimeout(TIMEOUT_S)
        assert _is_closed(huge)
        with Hostile(home) as impostor:
            assert "same disk" in impostor.greet(home.disk)["refused"]
            impostor.wait_closed()
        silent = [socket.create_connection(("127.0.0.1", home.port)) for _ in range(150)]
        assert isinstance(home.write("alive"), Applied)
        for connection in (huge, *silent):
            connection.close()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_members_are_restarted_one_by_one_with_a_newer_wire_version_while_the_others_commit(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        written = []
        for number, member in enumerate(cluster.members):
            member.stop()
            member.wire = Versions(WIRE.oldest, WIRE.newest + 1)
            member.start()
            name = f"upgraded {number}"
            wait_until("they commit", lambda name=name: isinstance(cluster.leader().write(name), Applied))
            wait_until("it follows", lambda member=member, name=name: name in member.running.read())
            written.append(name)
        assert set(written) <= set(cluster.leader().running.read())


def test_a_member_whose_wire_versions_nobody_speaks_is_refused_and_both_sides_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "walrus_node.metadata.transport")
    with cluster_of(tmp_path, 3) as cluster:
        stranger = cluster.followers()[0]
        stranger.stop()
        stranger.wire = Versions(WIRE.newest + 1, WIRE.newest + 2)
        stranger.start()
        wait_until("they commit", lambda: isinstance(cluster.leader().write("without it"), Applied))
        wait_until("they say why", lambda: "it speaks wire versions 2 to 3, this node 1 to 1" in caplog.text)
        wait_until("it says why", lambda: "it speaks wire versions 1 to 1, this node 2 to 3" in caplog.text)
        assert "without it" not in stranger.running.read()
