"""Topics whose creation the metadata have lost: what each disk has of them is asked of all members and put together.

The decisions are `walrus_core`'s (`metadata/remains.py`); here is the asking, and the translation into messages and
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from walrus_client.v1 import admin_pb2

from walrus_node.metadata.remains import (
    Descriptor,
    LeaderRef,
    LostTopic,
    Remains,
    ReplicaRef,
    SegmentRemains,
    TopicFacts,
)
from walrus_node.metadata.reports import Node

_NIL = str(UUID(int=0))


@dataclass(frozen=True)
class Gathered:
    """What the members said."""

    remains: list[Remains]
    silent: list[str]  # members that did not answer, with why


Ask = Callable[[Node], Awaitable[admin_pb2.ListRemainsResponse]]


async def gather(nodes: Iterable[Node], ask: Ask) -> Gathered:
    """Ask all members at once; *ask* raises `OSError` with the reason where one does not answer."""
    listed = list(nodes)
    answers = await asyncio.gather(*(ask(node) for node in listed), return_exceptions=True)
    gathered = Gathered([], [])
    for node, answer in zip(listed, answers, strict=True):
        if isinstance(answer, OSError):
            gathered.silent.append(f"node {node.node_id} ({node.name or node.disk}): {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            gathered.remains.extend(map(remains_of, answer.remains))
    return gathered


def remains_message(found: Remains) -> admin_pb2.Remains:
    """Return what a disk holds of one topic as a message."""
    return admin_pb2.Remains(
        node_id=found.replica.node,
        disk=found.replica.disk,
        topic=found.topic,
        facts=_facts_message(found.facts),
        segments=map(_segment_message, found.segments),
    )


def remains_of(message: admin_pb2.Remains) -> Remains:
    """Return what a message says."""
    return Remains(
        ReplicaRef(message.node_id, message.disk),
        message.topic,
        _facts_of(message.facts) if message.HasField("facts") else None,
        [_segment_of(message.topic, segment) for segment in message.segments],
    )


def lost_message(lost: LostTopic) -> admin_pb2.LostTopic:
    """Return what all disks hold of one topic as a message."""
    return admin_pb2.LostTopic(
        topic=lost.topic,
        facts=_facts_message(lost.facts),
        partitions=[
            admin_pb2.LostPartition(
                partition=partition.index,
                begins=partition.begins,
                ends=partition.ends,
                bytes=partition.bytes,
                problem="" if partition.ambiguity is None else str(partition.ambiguity),
            )
            for partition in lost.partitions
        ],
    )


def _facts_message(facts: TopicFacts | None) -> admin_pb2.TopicFacts | None:
    if facts is None:
        return None
    return admin_pb2.TopicFacts(org=facts.org, name=facts.name, internal=facts.internal, partitions=facts.partitions)


def _facts_of(message: admin_pb2.TopicFacts) -> TopicFacts:
    return TopicFacts(message.org, message.name, message.internal, message.partitions)


def _segment_message(segment: SegmentRemains) -> admin_pb2.SegmentRemains:
    return admin_pb2.SegmentRemains(
        segment=segment.segment,
        partition=segment.partition,
        number=segment.number,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        epoch=segment.epoch,
        is_sealed=segment.is_sealed,
        bytes=segment.bytes,
        descriptor=None if segment.descriptor is None else _descriptor_message(segment.descriptor),
    )


def _descriptor_message(descriptor: Descriptor) -> admin_pb2.RecordedDescriptor:
    return admin_pb2.RecordedDescriptor(
        leader_node=descriptor.leader.node,
        leader_process=descriptor.leader.process,
        replicas=[
            admin_pb2.RecordedReplica(node_id=replica.node, disk=replica.disk) for replica in descriptor.replicas
        ],
        write_quorum=descriptor.write_quorum,
    )


def _segment_of(topic: str, message: admin_pb2.SegmentRemains) -> SegmentRemains:
    recorded = message.descriptor
    descriptor = Descriptor(
        uuid=message.segment,
        topic=topic,
        partition=message.partition,
        number=message.number,
        base_offset=message.base_offset,
        epoch=message.epoch,
        leader=LeaderRef(recorded.leader_node, recorded.leader_process or _NIL),
        replicas=[ReplicaRef(replica.node_id, replica.disk) for replica in recorded.replicas],
        write_quorum=recorded.write_quorum,
    )
    return SegmentRemains(
        segment=message.segment,
        partition=message.partition,
        number=message.number,
        base_offset=message.base_offset,
        end_offset=message.end_offset,
        epoch=message.epoch,
        is_sealed=message.is_sealed,
        bytes=message.bytes,
        descriptor=descriptor if message.HasField("descriptor") else None,
    )
