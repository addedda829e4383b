"""Topics whose creation the metadata have lost: what each disk has of them is asked of all members and put together.

The decisions are `walrus_core`'s (`Metadata.lost_topics`, `Metadata.recover_topic`); here is the asking, and the
translation between messages and what they take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from walrus_client.v1 import admin_pb2

_NIL = str(UUID(int=0))


@dataclass(frozen=True)
class Gathered:
    """What the members said."""

    remains: list[dict[str, Any]]
    silent: list[str]  # members that did not answer, with why


Ask = Callable[[Mapping[str, Any]], Awaitable[admin_pb2.ListRemainsResponse]]


async def gather(nodes: Iterable[Mapping[str, Any]], ask: Ask) -> Gathered:
    """Ask all members at once; *ask* raises `OSError` with the reason where one does not answer."""
    listed = list(nodes)
    answers = await asyncio.gather(*(ask(node) for node in listed), return_exceptions=True)
    gathered = Gathered([], [])
    for node, answer in zip(listed, answers, strict=True):
        if isinstance(answer, OSError):
            gathered.silent.append(f"node {node['id']} ({node['name'] or node['disk']}): {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            gathered.remains.extend(map(remains_of, answer.remains))
    return gathered


def remains_message(found: Mapping[str, Any]) -> admin_pb2.Remains:
    """Return what `DataPlane.remains` says of one topic as a message."""
    return admin_pb2.Remains(
        node_id=found["replica"]["node"],
        disk=found["replica"]["disk"],
        topic=found["topic"],
        facts=_facts_message(found["facts"]),
        segments=map(_segment_message, found["segments"]),
    )


def remains_of(message: admin_pb2.Remains) -> dict[str, Any]:
    """Return a message as what `Metadata.lost_topics` takes."""
    return {
        "replica": {"node": message.node_id, "disk": message.disk},
        "topic": message.topic,
        "facts": _facts_of(message.facts) if message.HasField("facts") else None,
        "segments": [_segment_of(message.topic, segment) for segment in message.segments],
    }


def lost_message(lost: Mapping[str, Any]) -> admin_pb2.LostTopic:
    """Return what `Metadata.lost_topics` says of one topic as a message."""
    return admin_pb2.LostTopic(
        topic=lost["topic"],
        facts=_facts_message(lost["facts"]),
        partitions=[
            admin_pb2.LostPartition(
                partition=partition["index"],
                begins=partition["begins"],
                ends=partition["ends"],
                bytes=partition["bytes"],
                problem=partition["problem"] or "",
            )
            for partition in lost["partitions"]
        ],
    )


def _facts_message(facts: Mapping[str, Any] | None) -> admin_pb2.TopicFacts | None:
    return None if facts is None else admin_pb2.TopicFacts(**facts)


def _facts_of(message: admin_pb2.TopicFacts) -> dict[str, Any]:
    return {
        "org": message.org,
        "name": message.name,
        "internal": message.internal,
        "partitions": message.partitions,
    }


def _segment_message(segment: Mapping[str, Any]) -> admin_pb2.SegmentRemains:
    facts = {key: value for key, value in segment.items() if key != "descriptor"}
    descriptor = segment["descriptor"]
    if descriptor is None:
        return admin_pb2.SegmentRemains(**facts)
    recorded = admin_pb2.RecordedDescriptor(
        leader_node=descriptor["leader"]["node"],
        leader_process=descriptor["leader"]["process"],
        replicas=[
            admin_pb2.RecordedReplica(node_id=replica["node"], disk=replica["disk"])
            for replica in descriptor["replicas"]
        ],
        write_quorum=descriptor["write_quorum"],
    )
    return admin_pb2.SegmentRemains(**facts, descriptor=recorded)


def _segment_of(topic: str, message: admin_pb2.SegmentRemains) -> dict[str, Any]:
    place = {
        "partition": message.partition,
        "number": message.number,
        "base_offset": message.base_offset,
        "epoch": message.epoch,
    }
    recorded = message.descriptor
    descriptor = {
        **place,
        "uuid": message.segment,
        "topic": topic,
        "leader": {"node": recorded.leader_node, "process": recorded.leader_process or _NIL},
        "replicas": [{"node": replica.node_id, "disk": replica.disk} for replica in recorded.replicas],
        "write_quorum": recorded.write_quorum,
    }
    return {
        **place,
        "segment": message.segment,
        "end_offset": message.end_offset,
        "is_sealed": message.is_sealed,
        "bytes": message.bytes,
        "descriptor": descriptor if message.HasField("descriptor") else None,
    }
