"""Topics of any organisation, as the admin service takes and shows them: messages to requests and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import walrus_core
from walrus_client.v1 import admin_pb2

from walrus_node.config import Config
from walrus_node.policy import rollover_policy

COMPARED_MAX = 1_000

Request = Mapping[str, object]
"""A request of `Metadata.plan`, as its JSON has it."""


def node_limits(config: Config, settings: Mapping[str, int]) -> str:
    """What is in force on this node where no topic says otherwise, as `Metadata.compare_topics` takes it."""
    policy = rollover_policy(config, settings)
    names = ("segment_entries_max", "segment_bytes_max", "segment_age_ms_max")
    return json.dumps({name: policy[name] for name in names} | {"fsync": config.fsync})


def compare(
    metadata: walrus_core.Metadata, limits: str, wanted: Iterable[admin_pb2.WantedTopic], names: Mapping[int, str]
) -> list[admin_pb2.ComparedTopic]:
    """Compare topics as they are wanted with what there is; *names* are those of nodes."""
    asked = [{"org": topic.org, "name": topic.name, "config": dict(topic.config)} for topic in wanted]
    return [_compared(found, names) for found in metadata.compare_topics(json.dumps(asked), limits)]


def make(request: admin_pb2.MakeTopicRequest) -> Request:
    """Make a topic, or name the one that is there."""
    return {
        "kind": "create_topic",
        "org": request.org,
        "name": request.name,
        "partitions": request.partitions,
        "internal": False,
        "config": dict(request.config),
    }


def made(response: Mapping[str, Any]) -> admin_pb2.MakeTopicResponse:
    """The topic of that name."""
    topic = response["topic"]
    return admin_pb2.MakeTopicResponse(topic=topic["topic"], created=topic["created"])


def set_config(request: admin_pb2.SetTopicConfigRequest) -> Request:
    """Change the settings of a topic."""
    return {
        "kind": "alter_topic",
        "topic": request.topic,
        "set": dict(request.set),
        "unset": list(request.unset),
        "expect": request.expect_version if request.HasField("expect_version") else None,
    }


def set_partitions(request: admin_pb2.SetTopicPartitionsRequest) -> Request:
    """Give a topic more partitions."""
    return {"kind": "add_partitions", "topic": request.topic, "partitions": request.partitions}


def remove(request: admin_pb2.RemoveTopicRequest) -> Request:
    """Delete a topic."""
    return {"kind": "delete_topic", "topic": request.topic}


def _compared(compared: Mapping[str, Any], names: Mapping[int, str]) -> admin_pb2.ComparedTopic:
    answer = admin_pb2.ComparedTopic(refused=compared["refused"] or "")
    found = compared["found"]
    if found is not None:
        answer.found.CopyFrom(
            admin_pb2.FoundTopic(
                topic=found["topic"],
                partitions=found["partitions"],
                version=found["version"],
                replication=admin_pb2.ReplicationStatus(factor=found["factor"], write_quorum=found["write_quorum"]),
                differences=[admin_pb2.SettingDifference(**one) for one in found["differences"]],
                settings=[admin_pb2.SettingInForce(**one) for one in found["settings"]],
                leaders=[
                    admin_pb2.LeaderCount(node_id=int(node), name=names.get(int(node), ""), partitions=count)
                    for node, count in found["leaders"].items()
                ],
                sealed_bytes=found["sealed_bytes"],
            )
        )
    return answer
