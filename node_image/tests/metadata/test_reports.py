"""What `walrus_core` says of the metadata, as the node reads it: every field has its place and goes back as it came."""

import json
from dataclasses import asdict
from uuid import uuid4

import pytest
import walrus_core
from walrus_node.admin import lost_topics
from walrus_node.commands import bootstrap, envelope
from walrus_node.metadata import remains, reports
from walrus_node.metadata.admission import Registration
from walrus_node.metadata.machine import MetadataMachine
from walrus_node.metadata.reports import Load, Replication

DISK, PROCESS, TOPIC, SEGMENT = (str(uuid4()) for _ in range(4))


def metadata_of_one_node() -> walrus_core.Metadata:
    machine = MetadataMachine()
    machine.apply(envelope(bootstrap(uuid4(), Replication(1, 1))))
    registration = Registration(1, uuid4(), uuid4(), *(f"orders-1:{port}" for port in range(1, 7)), "orders-1", 1)
    facts = {
        name: fact if name in ("wanted", "level", "listeners") else str(fact)
        for name, fact in asdict(registration).items()
    }
    machine.apply(envelope({"register_node": facts}))
    return machine.view().metadata


def remains_of_one_segment() -> remains.Remains:
    replica = remains.ReplicaRef(1, DISK)
    leader = remains.LeaderRef(1, PROCESS)
    descriptor = remains.Descriptor(SEGMENT, TOPIC, 0, 0, 0, 1, leader, [replica], 1)
    facts = remains.TopicFacts("", "flights", internal=False, partitions=1)
    segment = remains.SegmentRemains(SEGMENT, 0, 0, 0, 7, 1, is_sealed=False, bytes=70, descriptor=descriptor)
    return remains.Remains(replica, TOPIC, facts, [segment])


def test_a_node_is_read_with_all_its_addresses() -> None:
    (node,) = reports.nodes(metadata_of_one_node())
    assert (node.node_id, node.name, node.state) == (1, "orders-1", "up")
    assert (node.raft_address, node.admin_address) == ("orders-1:1", "orders-1:6")
    assert node.zone == ""


def test_a_census_of_nothing_names_the_replication_and_no_load() -> None:
    census = reports.census(metadata_of_one_node(), [1])
    assert census.replication == Replication(1, 1)
    assert census.load(1) == Load(0, 0, 0) == census.load(7)
    assert census.spare_nodes is None


def test_upkeep_and_stopping_of_nothing_have_nothing_to_do() -> None:
    metadata, presence = metadata_of_one_node(), walrus_core.Presence(3_000)
    presence.observe(metadata, 0)
    upkeep = reports.upkeep(metadata, presence.look(metadata, 0))
    assert upkeep == reports.Upkeep([], reports.CopyProgress(0, 0, 0, 0, 0, 0))
    assert reports.stop_impact(metadata, 1, alive=[1], current=[1]) == reports.StopImpact(0, 0, 0, [])
    assert reports.segments(metadata, [1], topic=None, under_replicated=False, limit=9) == []


def test_remains_survive_the_message_to_another_node() -> None:
    found = remains_of_one_segment()
    assert lost_topics.remains_of(lost_topics.remains_message(found)) == found
    assert remains.Remains.parse(json.loads(json.dumps(asdict(found)))) == found


def test_a_lost_topic_is_found_and_named_again() -> None:
    metadata, presence = metadata_of_one_node(), walrus_core.Presence(3_000)
    presence.observe(metadata, 0)
    (lost,) = remains.lost_topics(metadata, [remains_of_one_segment()])
    assert (lost.topic, lost.facts) == (TOPIC, remains.TopicFacts("", "flights", internal=False, partitions=1))
    (partition,) = lost.partitions
    assert (partition.begins, partition.ends, partition.bytes, partition.ambiguity) == (0, 7, 70, None)
    assert partition.first is not None
    assert partition.first.uuid == SEGMENT
    present = presence.look(metadata, 0)
    assert remains.recover_topic(metadata, lost, "flights-again", present).name == "flights-again"
    nameless = remains.LostTopic(lost.topic, None, lost.partitions)
    with pytest.raises(ValueError, match="name"):
        remains.recover_topic(metadata, nameless, None, present)
