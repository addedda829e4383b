"""What becomes of WalrusTopics is that in `golden/topics`: the topic that brokers have, and all that is told of it.

WALRUS_WRITE_GOLDEN=1 writes the files anew.
"""

import os
from pathlib import Path

import pytest
import yaml
from driving import settle_topics
from test_topics import BILLING, DELETE, OBSERVED, resource, started
from walrus_operator.objects import TopicsKey

GOLDEN = Path(__file__).parent / "golden" / "topics"
EVERYTHING = {
    "cluster": "orders",
    "org": "acme",
    "name": "Billing.v2",
    "partitions": 6,
    "replicationFactor": 3,
    "segments": {"maxEntries": 1000, "maxBytes": "64Mi", "maxAge": "1h"},
    "retention": {"age": "7d", "bytes": "10Gi"},
    "configs": {"cleanup.policy": "compact,delete"},
    "deletionPolicy": "Delete",
}
STORIES = {
    "smallest": [{"cluster": "orders"}],
    "everything": [EVERYTHING],
    "changed": [BILLING, {**DELETE, "partitions": 5, "retention": {"age": "2h"}, "configs": {"segment.ms": 7000}}],
    "observed": [OBSERVED],
    "wrong-setting": [{**BILLING, "configs": {"retention.mss": 1}}],
    "fewer-partitions": [BILLING, {**BILLING, "partitions": 2}],
    "without-cluster": [{**BILLING, "cluster": "bills"}],
}


def told(kube):
    """The topic and the resource, without what says only when."""
    found = resource(kube)
    status = found.get("status", {})
    conditions = [{k: v for k, v in one.items() if k != "lastTransitionTime"} for one in status.get("conditions", ())]
    of_topics = [one for one in kube.objects.values() if one["kind"] == "Event"]
    return {
        "brokers": [
            {"org": org, "name": name, "partitions": one["partitions"], "config": one["config"]}
            for (_, org, name), one in sorted(kube.topics.topics.items())
        ],
        "finalizers": found["metadata"].get("finalizers", []),
        "events": [
            f"{one['type']} {one['reason']}: {one['message']}"
            for one in of_topics
            if one["involvedObject"]["kind"] == "WalrusTopic"
        ],
        "status": {**status, "conditions": conditions} if status else {},
    }


@pytest.mark.parametrize("name", STORIES)
def test_what_becomes_of_a_topic_is_the_golden_end(name):
    kube = started()
    kube.topics.orgs.add("acme")
    for spec in STORIES[name]:
        kube.put_topic("billing", spec)
        settle_topics(kube, TopicsKey("shop", spec["cluster"]))
    text = yaml.safe_dump(told(kube), sort_keys=False, width=120)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("WALRUS_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_no_golden_file_is_left_that_no_story_ends_in():
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(STORIES)
