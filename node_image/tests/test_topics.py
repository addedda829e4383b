"""Topics on real nodes: their settings, over restarts and upgrades, and as docs/reference/topics.md shows them."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from node_process import NodeProcess
from text_client import say
from waiting import wait_until
from walrus_client import Client, FoundOffset, KeptReason, OffsetPlace, OutRecord, SettingEffect, SettingSource, errors
from walrus_client.admin import AdminClient
from walrus_client.transport import DELETE_TOPIC
from walrus_client.v1 import log_pb2

walrus_core = pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 120.0
PAGE = Path(__file__).parents[2] / "docs/reference/topics.md"
LEVEL = 7
"""The level of commands that brought `walrus.leaders`."""


def address(node: NodeProcess) -> str:
    return f"127.0.0.1:{node.ports['grpc']}"


def three(node: Make, *flags: str) -> list[NodeProcess]:
    first = node("--bootstrap", "--replication-factor=3", "--write-quorum=2").start(*flags)
    nodes = [first, *(node("--join", first.raft_address).start(*flags) for _ in range(2))]
    for each in nodes:
        each.wait_ready()
    return nodes


def wait_for_settings(node: NodeProcess) -> None:
    """Waits until the cluster takes commands that change settings, for its leader has raised the level."""
    with Client(address(node)) as client:
        client.create_topic("probe")

        def is_taken() -> bool:
            try:
                client.alter_topic("probe", {"walrus.leaders": "rotate"})
            except errors.RejectedError:
                return False
            return True

        wait_until("the cluster knows settings", is_taken, timeout_s=TIMEOUT_S)
        client.delete_topic("probe")


def cli(node: NodeProcess, *arguments: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-m", "walrus_client.cli", *arguments, "--bootstrap", address(node)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_examples_of_the_reference_do_what_it_says(node: Make, tmp_path: Path) -> None:
    started = node("--bootstrap").start()
    started.wait_ready()
    wait_for_settings(started)
    examples = re.findall(r"```(?:text|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shell, python, timing, adding, adding_in_python, using_up, deleting, *others = examples
    deleting_in_python, compacting, by_time, streaming = others
    printed = [cli(started, *shlex.split(line)[1:]) for line in shell.splitlines()]
    assert re.search(r"max\.message\.bytes +1048588 +topic +next append", printed[-1])
    assert re.search(r"min\.insync\.replicas +3 +topic +next segment", printed[-1])
    assert re.search(r"segment\.ms +9223372036854775807 +node", printed[-1])
    assert "flush.ms" not in printed[-1]
    cli(started, "topics", "delete", "orders", "--yes")
    assert [cli(started, *shlex.split(line)[1:]) for line in timing.splitlines()] == [
        "clicks: 1 partition\n",
        "readings: 1 partition\n",
    ]
    cli(started, "topics", "delete", "clicks", "--yes")
    cli(started, "topics", "delete", "readings", "--yes")
    assert cli(started, *shlex.split(compacting)[1:]) == "profiles: 1 partition\n"
    cli(started, "topics", "delete", "profiles", "--yes")
    exec(python.replace("127.0.0.1:9090", address(started)), {})
    with Client(address(started)) as client:
        described = client.describe_topic("orders")
        assert (described.value("segment.bytes"), described.value("segment.ms")) == ("1048576", "9223372036854775807")
        client.delete_topic("orders")
        client.create_topic("orders", partitions=3)
        for count in (2_000, 10):
            client.append("orders", [b"x"] * count, partition=0)
        first, all_partitions = (cli(started, *shlex.split(line)[1:]) for line in deleting.splitlines())
        assert re.search(r"^ *0 +1500 *$", first, re.MULTILINE)
        assert re.search(r"^ *0 +2010 *$", all_partitions, re.MULTILINE)
        assert re.search(r"^ *2 +0 *$", all_partitions, re.MULTILINE)
        client.append("orders", [b"y"] * 5, partition=0)
        names: dict[str, object] = {"Client": Client}
        assert cli(started, *shlex.split(adding)[1:]) == "orders: 6 partitions\n"
        exec(adding_in_python.replace("127.0.0.1:9090", address(started)), names)
        cli(started, *shlex.split(using_up)[1:])
        assert client.describe_topic("orders").value("walrus.retention.consumed") == "GET"
        assert [topic.partitions for topic in client.topics()] == [6]
        exec(deleting_in_python.replace("127.0.0.1:9090", address(started)), names)
        starts = [partition.log_start for partition in client.describe_topic("orders").partitions]
        assert starts == [2_015, 0, 0, 0, 0, 0]
        exec(by_time.replace("127.0.0.1:9090", address(started)), names)
        found = {0: FoundOffset(None, None), 1: FoundOffset(0, None), 2: FoundOffset(None, None)}
        assert names["found"] == found, "all records of the three are deleted, or there never was one"
        (tmp_path / "orders.csv").write_text("a,1\nb,2\na,3\n")
        producing, *consuming = (shlex.split(line)[1:] for line in streaming.splitlines())
        assert cli(started, *producing, cwd=tmp_path).startswith("3 records, 6 B in ")
        since, at = (cli(started, *arguments).splitlines() for arguments in consuming)
        assert sorted(line.split("\t")[3:] for line in since) == [["a", "1"], ["a", "3"], ["b", "2"]]
        assert {json.loads(line)["partition"] for line in at} <= {0}


def test_settings_are_the_same_at_every_node_and_after_a_restart_of_all(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    with Client(address(nodes[0])) as client:
        client.create_topic("t", config={"walrus.segment.entries": 2, "preallocate": True})
        with pytest.raises(errors.TopicExists, match="other settings"):
            client.create_topic("t", config={"preallocate": False})
        version = client.alter_topic("t", {"max.message.bytes": 500}, unset=["preallocate"]).version
        with pytest.raises(errors.VersionMismatch) as stale:
            client.alter_topic("t", {"max.message.bytes": 1}, expect_version=version - 1)
        assert (stale.value.expected, stale.value.current) == (version - 1, version)
        with pytest.raises(errors.InvalidConfig, match=r"nearest name is max\.message\.bytes") as wrong:
            client.alter_topic("t", {"max.mesage.bytes": 1})
        assert wrong.value.key == "max.mesage.bytes"
        for number in range(5):
            client.append("t", [str(number).encode()])
        with pytest.raises(errors.TooLarge, match="limit is 500"):
            client.append("t", [b"x" * 501])
    for each in nodes:
        assert each.stop() == 0
    for each in nodes:
        each.start()
    for each in nodes:
        each.wait_ready()
        with Client(",".join(map(address, [each, *nodes]))) as client:
            described = client.describe_topic("t")
            assert described.version == version
            own = {s.name: s.value for s in described.settings if s.source is SettingSource.TOPIC}
            assert own == {"walrus.segment.entries": "2", "max.message.bytes": "500"}
            assert {s.effect for s in described.settings} == set(SettingEffect)
            assert [record.value for record in client.read("t")] == [b"0", b"1", b"2", b"3", b"4"]
            assert [segment.end_offset for segment in client.segments("t")[0].segments[:2]] == [2, 4]


def test_a_topic_that_took_a_deleted_ones_name_is_not_deleted_in_its_place(node: Make) -> None:
    started = node("--bootstrap").start()
    started.wait_ready()
    with Client(address(started)) as client:
        before = client.create_topic("t")
        client.delete_topic("t")
        with pytest.raises(errors.UnknownTopic):
            client.delete_topic("t")
        after = client.create_topic("t")
        assert after.uuid != before.uuid
        described = json.loads(cli(started, "topics", "describe", "t", "--output", "json"))
        assert described["topic"]["uuid"] == after.uuid
        with pytest.raises(errors.UnknownTopic):
            client._call(DELETE_TOPIC, log_pb2.DeleteTopicRequest(topic="t", uuid=before.uuid))
        with pytest.raises(errors.InvalidRequest, match="is not a uuid"):
            client._call(DELETE_TOPIC, log_pb2.DeleteTopicRequest(topic="t", uuid="t"))
        command = [sys.executable, "-m", "walrus_client.cli", "topics", "delete", "t", "--bootstrap", address(started)]
        asked = subprocess.run(command, input="n\n", capture_output=True, text=True, check=False, timeout=60)
        assert (asked.returncode, asked.stdout.strip()) == (1, "")
        assert "Delete topic t with all its records?" in asked.stderr
        assert [topic.uuid for topic in client.topics()] == [after.uuid]


def test_settings_wait_until_every_node_knows_them(node: Make) -> None:
    nodes = three(node, "--test-controls", "--test-level", str(LEVEL - 1))
    with Client(address(nodes[0])) as client:
        client.create_topic("t")
    restart(nodes[:2])
    with Client(address(nodes[0])) as client:
        with pytest.raises(errors.RejectedError, match=f"needs commands of level {LEVEL}"):
            client.alter_topic("t", {"walrus.leaders": "sticky"})
        with pytest.raises(errors.RejectedError, match=f"needs commands of level {LEVEL}"):
            client.create_topic("other", config={"walrus.leaders": "sticky"})
        assert client.describe_topic("t").version == 0
        assert [topic.name for topic in client.topics()] == ["t"]
    restart(nodes[2:])
    wait_for_settings(nodes[0])
    with Client(address(nodes[0])) as client:
        assert client.alter_topic("t", {"walrus.leaders": "sticky"}).value("walrus.leaders") == "sticky"


def test_a_topic_is_given_more_partitions_while_records_flow_and_never_fewer(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    with Client(address(nodes[0])) as client, Client(address(nodes[2])) as other:
        client.create_topic("t", config={"walrus.replication.factor": 3})
        with client.producer("t") as producer:
            for number in range(20):
                if number == 10:
                    assert other.add_partitions("t", 4).partitions == 4
                producer.send(str(number).encode())
            producer.flush()
        assert client.add_partitions("t", 4).partitions == 4
        with pytest.raises(errors.RejectedError, match="has 4 partitions and cannot have 3"):
            client.add_partitions("t", 3)
        with pytest.raises(errors.RejectedError, match="10001 partitions are more than 10000"):
            client.add_partitions("t", 10_001)
        with pytest.raises(errors.UnknownTopic):
            client.add_partitions("nothing", 3)
        with client.producer("t") as producer:
            places = {producer.send(b"x", key=str(number).encode()).result().partition for number in range(40)}
        assert places == {0, 1, 2, 3}
        for partition in (1, 2, 3):
            assert other.append("t", [b"last"], partition=partition).base_offset > 0
    restart(nodes)
    with Client(",".join(map(address, nodes))) as client:
        assert [record.value for record in client.read("t")][:20] == [str(number).encode() for number in range(20)]
        for partition in (1, 2, 3):
            assert [record.value for record in client.read("t", partition)][-1] == b"last"
        assert {len(kept.segments[0].replicas) for kept in client.segments("t")} == {3}


def test_a_sticky_leader_stays_and_the_next_one_too_once_it_is_away(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    by_id = {each.wait_ready()["node_id"]: each for each in nodes}
    with Client(",".join(map(address, nodes))) as client:
        client.create_topic("t", config={"walrus.leaders": "sticky", "walrus.segment.entries": 1})

        def staying() -> int | None:
            """Whoever has led five segments one after the other; where leaders take turns nobody leads two."""
            client.append("t", [b"x"])
            last = [segment.leader for segment in client.segments("t")[0].segments][-5:]
            ids = {leader.id for leader in last if leader is not None}
            return ids.pop() if len(last) == 5 and len(ids) == 1 else None

        leader = wait_until("the leader stays", staying, timeout_s=TIMEOUT_S)
        with AdminClient(f"127.0.0.1:{nodes[0].ports['admin']}") as admin:
            wait_until("two are a majority", lambda: admin.status().metadata.voters == (1, 2, 3), timeout_s=TIMEOUT_S)
        by_id.pop(leader).kill()
        client.append("t", [b"x"])
        next_leader = wait_until("the leader after it stays", staying, timeout_s=TIMEOUT_S)
        assert next_leader in by_id


def test_sticky_leaders_go_back_to_a_node_that_was_away(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    by_id = {each.wait_ready()["node_id"]: each for each in nodes}
    with Client(",".join(map(address, nodes))) as client:
        client.create_topic("t", partitions=9, config={"walrus.leaders": "sticky"})
        for partition in range(9):
            client.append("t", [b"before"], partition=partition)

        def led_by(wanted: int) -> int:
            leaders = [partition.segments[-1].leader for partition in client.segments("t")]
            return sum(leader is not None and leader.id == wanted for leader in leaders)

        with AdminClient(f"127.0.0.1:{nodes[0].ports['admin']}") as admin:
            wait_until("two are a majority", lambda: admin.status().metadata.voters == (1, 2, 3), timeout_s=TIMEOUT_S)
        away = max(by_id, key=led_by)
        by_id[away].kill()
        for partition in range(9):
            client.append("t", [b"meanwhile"], partition=partition)
        wait_until("others lead", lambda: led_by(away) == 0, timeout_s=TIMEOUT_S)
        by_id[away].start()
        wait_until("it leads its share again", lambda: led_by(away) >= 2, timeout_s=60)
        for partition in range(9):
            client.append("t", [b"after"], partition=partition)
            values = [record.value for record in client.read("t", partition)]
            assert values == [b"before", b"meanwhile", b"after"]


def test_a_topic_has_as_many_copies_as_it_says_also_of_what_it_had_before(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    values = [str(number).encode() for number in range(3)]
    with Client(address(nodes[0])) as client, AdminClient(f"127.0.0.1:{nodes[0].ports['admin']}") as admin:
        client.create_topic("t", config={"walrus.replication.factor": 1, "walrus.segment.entries": 1})
        for value in values:
            client.append("t", [value])
        assert {len(segment.replicas) for segment in client.segments("t")[0].segments} == {1}
        assert {len(segment.copies) for segment in admin.segments("default/t")} == {1}
        client.alter_topic("t", {"walrus.replication.factor": 3})

        def are_three() -> bool:
            segments = admin.segments("default/t")
            return all(len(segment.copies) == 3 and not segment.under_replicated for segment in segments)

        wait_until("there are three copies of each segment", are_three, timeout_s=TIMEOUT_S)
        assert [record.value for record in client.read("t")] == values


def test_a_short_retention_empties_a_topic_and_until_then_it_says_why_it_is_still_there(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    with Client(address(nodes[1])) as client:
        client.create_topic("t", config={"walrus.segment.entries": 10, "retention.ms": 3_600_000})
        for number in range(35):
            client.append("t", [str(number).encode()])
        wait_until("sizes are reported", lambda: client.describe_topic("t").partitions[0].sealed_bytes > 0)
        kept = client.describe_topic("t").partitions[0]
        assert (kept.log_start, kept.sealed_segments, kept.reason) == (0, 3, KeptReason.AGE)
        assert kept.until_ms is not None
        assert 0 < kept.until_ms / 1000 - time.time() <= 3_600
        assert "too young, until 20" in cli(nodes[2], "topics", "describe", "t")
        client.alter_topic("t", {"retention.ms": 1})

        def is_empty() -> bool:
            partition = client.segments("t")[0]
            return (partition.log_start, len(partition.segments)) == (35, 1)

        wait_until("the topic is empty", is_empty, timeout_s=60)
        with pytest.raises(errors.OffsetOutOfRange):
            next(iter(client.read("t", 0, 0)))
        assert client.append("t", [b"35"]).base_offset == 35
        client.alter_topic("t", {}, unset=["retention.ms"])
        assert [record.value for record in client.read("t", 0, 35)] == [b"35"]


def test_a_topic_is_a_queue_of_which_goes_what_get_has_delivered(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    with Client(address(nodes[1])) as client:
        client.create_topic("jobs", config={"walrus.segment.entries": 10, "walrus.retention.consumed": "GET"})
        client.append("jobs", [str(number).encode() for number in range(10)])
        for number in range(10, 25):
            client.append("jobs", [str(number).encode()])
        assert [say(nodes[2], "GET jobs") for _ in range(3)] == ["OK 0", "OK 1", "OK 2"]
        wait_until("sizes are reported", lambda: client.describe_topic("jobs").partitions[0].sealed_bytes > 0)
        kept = client.describe_topic("jobs").partitions[0]
        assert (kept.log_start, kept.reason, kept.reader) == (0, KeptReason.READER, "GET")
        assert "not read yet, by GET" in cli(nodes[2], "topics", "describe", "jobs")
        rest = [say(nodes[number % 3], "GET jobs") for number in range(10)]
        assert rest == [f"OK {number}" for number in range(3, 13)]

        def start() -> int:
            return client.describe_topic("jobs").partitions[0].log_start

        wait_until("what was delivered goes", lambda: start() == 10, timeout_s=60)
        assert [record.value for record in client.read("jobs", 0, 10)][:3] == [b"10", b"11", b"12"]
        assert say(nodes[0], "GET jobs") == "OK 13"


def last_of_each_key(client: Client, topic: str) -> dict[bytes, bytes | None]:
    return {record.key or b"": record.value for record in client.read(topic)}


def is_compacted(client: Client, topic: str) -> bool:
    """Whether all that is sealed is one segment, which a compaction has joined."""
    segments = client.segments(topic)[0].segments
    return len(segments) == 2 and len(segments[0].epochs) > 1


def test_a_compacted_topic_keeps_the_last_record_of_each_key_for_whoever_reads(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    config: dict[str, str | int] = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
        "walrus.segment.entries": 20,
    }
    with Client(address(nodes[1])) as client:
        client.create_topic("t", config=config)
        expected: dict[bytes, bytes | None] = {}
        for number in range(170):
            key, value = f"k{number * 3 % 7}".encode(), str(number).encode()
            client.append("t", [OutRecord(value, key=key)])
            expected[key] = value
        with pytest.raises(errors.RejectedError, match="record 1 has no key, and topic t is compacted"):
            client.append("t", [OutRecord(b"x", key=b"k"), OutRecord(b"y")])
        wait_until("it is compacted", lambda: is_compacted(client, "t"), timeout_s=TIMEOUT_S)
        assert last_of_each_key(client, "t") == expected
        sealed, opened = client.segments("t")[0].segments
        records = [record.offset for record in client.read("t")]
        assert len([offset for offset in records if offset < sealed.end_offset]) == 7
        # An offset that is gone is where the next record is, and no damage; the shared cursor passes it over, too.
        (first, *_) = client.read("t", 0, 1)
        assert first.offset == records[0]
        lines = cli(nodes[2], "consume", "t", "--output", "json").splitlines()
        assert [json.loads(line)["offset"] for line in lines] == records
        values = [f"OK {(record.value or b'').decode()}" for record in client.read("t")]
        assert [say(nodes[0], "GET t") for _ in records] == values
        assert say(nodes[2], "GET t") == "EMPTY"
        assert say(nodes[2], "PUT t x").startswith("ERR invalid batch: record 0 has no key")
        assert opened.base_offset == sealed.end_offset
        assert client.describe_topic("t").partitions[0].compacted_to == sealed.end_offset
        described = cli(nodes[2], "topics", "describe", "t")
        assert re.search(rf"^ *0 +0 +1 +.*kept for ever.* +{sealed.end_offset} *$", described, re.MULTILINE), described
        # A tombstone is all that is left of its key, and goes when nobody can lack it any more.
        client.append("t", [OutRecord(None, key=b"k0")])
        for number in range(30):
            client.append("t", [OutRecord(str(number).encode(), key=b"k1")])
        expected |= {b"k0": None, b"k1": b"29"}

        def k0() -> list[bytes | None]:
            return [record.value for record in client.read("t") if record.key == b"k0"]

        wait_until("the value of a deleted key is gone", lambda: k0() == [None], timeout_s=TIMEOUT_S)
        assert last_of_each_key(client, "t") == expected
        client.alter_topic("t", {"delete.retention.ms": 1})
        wait_until("the deleted key is gone", lambda: k0() == [], timeout_s=TIMEOUT_S)
    restart(nodes)
    del expected[b"k0"]
    for each in nodes:
        with Client(address(each)) as client:
            assert last_of_each_key(client, "t") == expected


def test_records_have_the_leaders_time_for_all_who_read_and_after_a_failover(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    by_id = {each.wait_ready()["node_id"]: each for each in nodes}
    began = int(time.time() * 1000)
    with Client(",".join(map(address, nodes))) as client:
        client.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        for number, each in enumerate(nodes):
            with Client(address(each)) as through:
                through.append("t", [OutRecord(b"%d" % number, timestamp_ms=5), OutRecord(b"x", timestamp_ms=-1)])

        def times() -> list[int]:
            told = [record.timestamp_ms for record in client.read("t")]
            columns = [walrus_core.decode_batches(page.batches) for page in client.read_batches("t")]
            times_us = [us for each in columns for us in memoryview(each.timestamp_us).cast("B").cast("q")]
            assert told == [us // 1000 for us in times_us]
            kinds = [kind for each in columns for kind in memoryview(each.timestamp_type).cast("B").cast("i")]
            assert set(kinds) == {1}
            return told

        before = times()
        assert len(before) == 6
        assert all(began <= ms <= time.time() * 1000 for ms in before)
        assert [before[0], before[2], before[4]] == [before[1], before[3], before[5]]
        newest = client.list_offsets("t", {0: OffsetPlace.MAX_TIMESTAMP})[0]
        assert (newest.timestamp_ms, newest.offset) == (max(before), before.index(max(before)))
        with AdminClient(f"127.0.0.1:{nodes[0].ports['admin']}") as admin:
            wait_until("two are a majority", lambda: admin.status().metadata.voters == (1, 2, 3), timeout_s=TIMEOUT_S)
        leader = client.segments("t")[0].segments[-1].leader
        assert leader is not None
        by_id[leader.id].kill()
        client.append("t", [OutRecord(b"after", timestamp_ms=5)])
        after = times()
        assert after[:6] == before
        assert after[6] > began


def test_a_record_too_far_from_the_leaders_clock_is_refused_by_every_node(node: Make) -> None:
    nodes = three(node)
    wait_for_settings(nodes[0])
    with Client(address(nodes[0])) as client:
        client.create_topic("t", config={"message.timestamp.before.max.ms": 3_600_000})
        now = int(time.time() * 1000)
        for each in nodes:
            with Client(address(each)) as through:
                with pytest.raises(errors.InvalidTimestamp, match=r"correct the clock of the producer"):
                    through.append("t", [OutRecord(b"x", timestamp_ms=now), OutRecord(b"old", timestamp_ms=7)])
                through.append("t", [OutRecord(b"fine", timestamp_ms=now)])
        assert [record.value for record in client.read("t")] == [b"fine"] * 3


def restart(nodes: list[NodeProcess]) -> None:
    for each in nodes:
        assert each.stop() == 0
        each.start()
        each.wait_ready()
