"""Topics that Kubernetes asks for: what becomes of each, over simulated brokers and without a memory."""

from copy import deepcopy
from functools import cache

import pytest
from crashing import crash_at_each_write
from driving import TOPICS, Operator, converge, settle_topics, topic_condition, topic_status
from examples import SMALLEST, changed
from simkube import SimKube
from walrus_operator.objects import Ref

BILLING = {"cluster": "orders", "partitions": 3, "retention": {"age": "1h"}, "configs": {"cleanup.policy": "Delete"}}
DELETE = {**BILLING, "deletionPolicy": "Delete"}
OBSERVED = {**BILLING, "managementPolicy": "ObserveOnly"}
FINALIZER = "walrus.dev/topic"


@cache
def _first():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    converge(kube)
    return kube


def started():
    """A cluster that serves."""
    return deepcopy(_first())


def with_topic(spec=BILLING, name="billing"):
    kube = started()
    kube.put_topic(name, spec)
    settle_topics(kube)
    return kube


def resource(kube, name="billing"):
    return kube.objects.get(Ref("WalrusTopic", "shop", name))


def events(kube, reason):
    """The messages of those about topics."""
    told = [found for ref, found in kube.objects.items() if ref.kind == "Event"]
    of_topics = [one for one in told if one["involvedObject"]["kind"] == "WalrusTopic"]
    return [one["message"] for one in of_topics if one["reason"] == reason]


def test_a_topic_is_made_as_the_spec_says_in_one_pass_and_then_nothing_is_written():
    kube = started()
    kube.put_topic("billing", BILLING)
    Operator(kube).topics_once()
    made = kube.topics.found("billing")
    assert (made["partitions"], made["config"]) == (3, {"retention.ms": "3600000", "cleanup.policy": "delete"})
    told = topic_status(kube)
    assert (told["phase"], told["name"], told["topicId"], told["partitions"]) == (
        "Ready",
        "default/billing",
        made["id"],
        3,
    )
    assert {"name": "retention.ms", "value": "3600000", "source": "topic"} in told["settings"]
    assert {"name": "segment.ms", "value": "-1", "source": "built_in"} in told["settings"]
    assert told["leaders"] == [{"broker": "orders-general-0", "partitions": 3}]
    assert {one["type"]: one["status"] for one in told["conditions"]} == dict.fromkeys(
        ("Ready", "Accepted", "Synced"), "True"
    )
    assert "finalizers" not in resource(kube)["metadata"]
    writes = kube.writes
    for _ in range(3):
        passed = Operator(kube).topics_once()
        assert (passed.acts, passed.statuses, passed.again_s) == ((), 0, 60.0)
    assert kube.writes == writes
    assert events(kube, "Created") == [
        "Create topic default/billing with 3 partitions, cleanup.policy=Delete, retention.ms=3600000"
    ]


def test_a_changed_spec_changes_the_topic():
    kube = with_topic()
    kube.put_topic("billing", {"cluster": "orders", "partitions": 5, "segments": {"maxAge": "90s", "maxBytes": "1Mi"}})
    settle_topics(kube)
    made = kube.topics.found("billing")
    assert (made["partitions"], made["config"]) == (5, {"segment.ms": "90000", "segment.bytes": "1048576"})
    assert topic_status(kube)["observedGeneration"] == 2
    assert topic_condition(kube, "Ready")["status"] == "True"


def test_what_somebody_changed_is_put_right_and_told():
    kube = with_topic()
    kube.topics.change("billing", **{"retention.ms": "1", "segment.ms": "7"})
    settle_topics(kube)
    assert kube.topics.found("billing")["config"] == {"retention.ms": "3600000", "cleanup.policy": "delete"}
    assert "drift" not in topic_status(kube)
    assert events(kube, "Updated") == ["Set retention.ms=3600000, segment.ms back to its default"]


def test_a_topic_that_somebody_deleted_is_made_again():
    kube = with_topic()
    former = kube.topics.found("billing")["id"]
    kube.topics.drop("billing")
    settle_topics(kube)
    assert kube.topics.found("billing")["id"] != former
    assert topic_status(kube)["topicId"] == kube.topics.found("billing")["id"]


def test_a_topic_that_is_there_is_taken_over():
    kube = started()
    there = kube.topics.make("billing", partitions=2, config={"segment.ms": "5"})
    kube.put_topic("billing", BILLING)
    settle_topics(kube)
    assert kube.topics.found("billing")["id"] == there["id"]
    assert there["partitions"] == 3
    assert there["config"] == {"retention.ms": "3600000", "cleanup.policy": "delete"}


def test_a_topic_of_another_organisation_and_name_than_the_resource():
    kube = started()
    kube.topics.orgs.add("acme")
    kube.put_topic("billing", {"cluster": "orders", "org": "acme", "name": "Billing.v2"})
    settle_topics(kube)
    assert kube.topics.found("Billing.v2", "acme")["partitions"] == 1
    assert topic_status(kube)["name"] == "acme/Billing.v2"


# What cannot be


def test_a_setting_that_there_is_not_is_told_in_the_words_of_the_brokers_and_nothing_is_done():
    kube = with_topic({**BILLING, "configs": {"retention.mss": 1}})
    assert kube.topics.found("billing") is None
    told = topic_condition(kube, "Ready")
    assert (told["status"], told["reason"]) == ("False", "SettingsRefused")
    assert told["message"] == "topic setting retention.mss: there is no such setting; the nearest name is retention.ms"
    assert topic_condition(kube, "Accepted")["status"] == "False"
    assert topic_condition(kube, "Synced")["status"] == "Unknown"
    assert events(kube, "SpecRefused") == [told["message"]]
    kube.put_topic("billing", BILLING)
    settle_topics(kube)
    assert topic_condition(kube, "Ready")["status"] == "True"


def test_a_refused_change_of_a_topic_leaves_it_as_it_is():
    kube = with_topic()
    kube.put_topic("billing", {**BILLING, "partitions": 9, "configs": {"segment.ms": "soon"}})
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 3
    assert topic_status(kube)["partitions"] == 3
    assert topic_condition(kube, "Accepted")["reason"] == "SettingsRefused"


def test_fewer_partitions_than_there_are_is_a_condition_and_the_rest_is_done():
    kube = started()
    kube.topics.make("billing", partitions=6)
    kube.put_topic("billing", BILLING)
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 6
    assert kube.topics.found("billing")["config"]["retention.ms"] == "3600000"
    told = topic_condition(kube, "Ready")
    assert (told["reason"], "write partitions: 6" in told["message"]) == ("FewerPartitions", True)
    assert topic_status(kube)["drift"] == [{"field": "partitions", "wanted": "3", "found": "6"}]


@pytest.mark.parametrize("limit", ["organisation", "full"])
def test_what_the_brokers_refuse_is_told_in_their_words(limit):
    kube = started()
    kube.topics.full = limit == "full"
    kube.put_topic("billing", BILLING if limit == "full" else {**BILLING, "org": "acme"})
    Operator(kube).topics_once()
    told = topic_condition(kube, "Ready")
    assert (told["status"], told["reason"]) == ("False", "Refused")
    assert ("its limit is 1" if limit == "full" else 'no organisation "acme"') in told["message"]
    kube.topics.full = False
    kube.topics.orgs.add("acme")
    settle_topics(kube)
    assert topic_condition(kube, "Ready")["status"] == "True"


def test_of_two_that_ask_for_one_topic_the_older_has_it_and_the_other_says_so():
    kube = with_topic()
    kube.put_topic("second", {**DELETE, "name": "billing", "partitions": 7})
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 3
    told = topic_condition(kube, "Ready", "second")
    assert (told["status"], told["reason"]) == ("False", "NameTaken")
    assert told["message"] == (
        "WalrusTopic billing is older and has topic default/billing: give one of them another name"
    )
    assert "finalizers" not in resource(kube, "second")["metadata"], "it has no topic that would go with it"
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 7
    assert topic_condition(kube, "Ready", "second")["status"] == "True"


def test_a_spec_of_a_newer_operator_is_refused_by_field():
    kube = with_topic({**BILLING, "compaction": True})
    assert kube.topics.found("billing") is None
    told = topic_condition(kube, "Ready")
    assert (told["reason"], "spec.compaction" in told["message"]) == ("Invalid", True)


def test_a_topic_without_a_cluster_says_so_and_is_made_once_there_is_one():
    kube = SimKube()
    kube.put_topic("billing", DELETE)
    settle_topics(kube)
    told = topic_condition(kube, "Ready")
    assert (told["status"], told["reason"]) == ("Unknown", "NoCluster")
    assert "WalrusCluster orders is not there in this namespace" in told["message"]
    assert "finalizers" not in resource(kube)["metadata"]
    kube.put("orders", SMALLEST)
    Operator(kube).once()
    settle_topics(kube)
    assert topic_condition(kube, "Ready")["reason"] == "BrokersUnavailable"
    converge(kube)
    settle_topics(kube)
    assert topic_condition(kube, "Ready")["status"] == "True"


def test_brokers_that_do_not_answer_change_nothing_that_is_told():
    kube = with_topic()
    before = topic_status(kube)
    kube.down |= {f"orders-general-{number}" for number in range(3)}
    kube.topics.bytes = 5
    settle_topics(kube)
    assert topic_status(kube) == before
    kube.put_topic("billing", {**BILLING, "partitions": 4})
    settle_topics(kube)
    told = topic_status(kube)
    assert (told["phase"], told["observedGeneration"]) == ("BrokersUnavailable", 2)
    assert (told["topicId"], told["partitions"]) == (before["topicId"], 3), "what is not told is not forgotten"
    kube.down.clear()
    settle_topics(kube)
    assert topic_status(kube)["partitions"] == 4


def test_topics_of_a_paused_cluster_are_told_of_and_nothing_else():
    kube = with_topic(DELETE)
    kube.put("orders", SMALLEST, annotations={"walrus.dev/pause": "moving house"})
    kube.put_topic("billing", {**DELETE, "partitions": 4})
    kube.put_topic("fresh", DELETE)
    kube.topics.change("billing", **{"segment.ms": "7"})
    before = dict(kube.calls)
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 3
    assert kube.topics.found("fresh") is None
    told = topic_condition(kube, "Ready")
    assert told["reason"] == "Paused"
    assert "Add partitions: 4 instead of 3" in told["message"]
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert resource(kube) is not None
    wrote = {key for key, times in kube.calls.items() if times != before.get(key, 0)}
    reads = {("compare", "topics")}
    assert {key for key in wrote if key[0] not in ("get", "list")} - reads == {("patch", "WalrusTopic/status")}
    kube.put("orders", SMALLEST)
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing") is None


# ObserveOnly


def test_a_topic_that_is_only_observed_is_told_of_and_never_changed():
    kube = started()
    kube.topics.make("billing", partitions=2, config={"segment.ms": "5"})
    before = dict(kube.topics.found("billing"))
    kube.put_topic("billing", OBSERVED)
    calls = dict(kube.calls)
    settle_topics(kube)
    kube.remove("WalrusTopic", "billing")
    assert kube.topics.found("billing") == before
    wrote = {key for key, times in kube.calls.items() if times != calls.get(key, 0)}
    assert {verb for verb, _ in wrote} <= {"get", "list", "compare", "patch"}


def test_drift_of_an_observed_topic_is_a_diff_in_the_status():
    kube = started()
    kube.topics.make("billing", partitions=2, config={"segment.ms": "5", "cleanup.policy": "delete"})
    kube.put_topic("billing", OBSERVED)
    settle_topics(kube)
    told = topic_status(kube)
    assert told["drift"] == [
        {"field": "partitions", "wanted": "3", "found": "2"},
        {"field": "retention.ms", "wanted": "3600000"},
        {"field": "segment.ms", "found": "5"},
    ]
    assert (topic_condition(kube, "Synced")["status"], told["phase"]) == ("False", "Drifted")
    assert topic_condition(kube, "Accepted")["status"] == "True"
    kube.put_topic("billing", {**OBSERVED, "managementPolicy": "Full"})
    settle_topics(kube)
    assert kube.topics.found("billing")["partitions"] == 3
    assert topic_status(kube)["phase"] == "Ready"


def test_an_observed_topic_that_is_not_there_is_missing():
    kube = with_topic(OBSERVED)
    assert kube.topics.found("billing") is None
    assert topic_condition(kube, "Ready")["reason"] == "Missing"
    assert topic_status(kube)["drift"] == [{"field": "topic", "wanted": "default/billing"}]


# Deletion


def test_with_retain_the_topic_stays_and_there_is_no_finalizer():
    kube = with_topic()
    assert not resource(kube)["metadata"].get("finalizers")
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing")["partitions"] == 3


def test_with_delete_the_topic_goes_first():
    kube = with_topic(DELETE)
    assert resource(kube)["metadata"].get("finalizers") == [FINALIZER]
    kube.remove("WalrusTopic", "billing")
    assert resource(kube) is not None
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing") is None
    assert len(events(kube, "Removed")) == 1


def test_a_policy_that_goes_back_to_retain_takes_the_finalizer_away():
    kube = with_topic(DELETE)
    kube.put_topic("billing", BILLING)
    settle_topics(kube)
    assert resource(kube)["metadata"]["finalizers"] == []


@pytest.mark.parametrize("how", ["gone", "deleting"])
def test_a_deletion_does_not_wait_for_a_cluster_that_is_gone(how):
    kube = with_topic(DELETE)
    if how == "gone":
        kube.remove("WalrusCluster", "orders")
    else:
        kube.objects[Ref("WalrusCluster", "shop", "orders")]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing") is not None


def test_a_deletion_waits_for_brokers_that_do_not_answer_and_says_so():
    kube = with_topic(DELETE)
    kube.down |= {f"orders-general-{number}" for number in range(3)}
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert "with deletionPolicy: Retain it stays" in topic_condition(kube, "Ready")["message"]
    kube.put_topic("billing", BILLING)
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing") is not None


@pytest.mark.parametrize("doubt", ["another", "unknown", "taken over"])
def test_in_doubt_the_topic_stays(doubt):
    kube = with_topic(DELETE)
    if doubt == "another":
        kube.topics.drop("billing")
        kube.topics.make("billing")
    elif doubt == "unknown":
        del topic_status(kube)["topicId"]
    else:
        kube.put_topic("second", {**BILLING, "name": "billing"})
    topic = kube.topics.found("billing")["id"]
    kube.remove("WalrusTopic", "billing")
    settle_topics(kube)
    assert resource(kube) is None
    assert kube.topics.found("billing") is not None
    assert kube.topics.found("billing")["id"] == topic, "it went, and another one was made"


# Rest, and what it costs


def test_figures_are_brought_up_to_date_now_and_then_and_what_says_something_new_at_once():
    kube = with_topic()
    operator = Operator(kube)
    seconds = 0.0
    operator.topics._monotonic = lambda: seconds
    kube.topics.bytes = 5_000_000
    assert operator.topics_once().statuses == 1, "without a memory it writes once more"
    for number in range(20):
        seconds += 60.0
        kube.topics.bytes += 10**6 * (number + 1)
        operator.topics_once()
    assert topic_status(kube)["size"] == "210Mi"
    assert kube.calls["patch", "WalrusTopic/status"] <= 2 + 20 * 60 / 300 + 1
    calls = kube.calls["patch", "WalrusTopic/status"]
    kube.put_topic("billing", {**BILLING, "partitions": 4})
    operator.topics_once()
    assert kube.calls["patch", "WalrusTopic/status"] == calls + 1


def test_a_thousand_topics_are_made_and_at_rest_cost_one_list_and_two_questions():
    kube = started()
    for number in range(1000):
        kube.put_topic(f"topic-{number}", {"cluster": "orders"})
    settle_topics(kube)
    assert len(kube.topics.topics) == 1000
    assert all(found["status"]["phase"] == "Ready" for ref, found in kube.objects.items() if ref.kind == "WalrusTopic")
    calls, writes = dict(kube.calls), kube.writes
    Operator(kube).topics_once()
    assert kube.writes == writes
    used = {key: times - calls.get(key, 0) for key, times in kube.calls.items() if times != calls.get(key, 0)}
    assert used["list", "WalrusTopic"] == 1
    assert used["compare", "topics"] == 2
    assert sum(used.values()) < 15


def test_a_crash_at_any_write_leads_to_the_same_end():
    """Make, change, lose, duplicate, delete: dying before or after each write, calls of brokers too, and anew."""
    ends = []

    def check(kube):
        topics = {key: (one["partitions"], one["config"]) for key, one in kube.topics.topics.items()}
        resources = {ref.name: found["spec"] for ref, found in kube.objects.items() if ref.kind == "WalrusTopic"}
        ends.append((topics, resources, {name: topic_status(kube, name)["phase"] for name in resources}))
        assert ends[-1] == ends[0]

    acts = [
        lambda kube: kube.put_topic("billing", DELETE),
        lambda kube: kube.put_topic("billing", {**DELETE, "partitions": 5, "configs": {"segment.ms": 7}}),
        lambda kube: kube.topics.drop("billing"),
        lambda kube: kube.put_topic("second", {**BILLING, "name": "billing"}),
        lambda kube: kube.put_topic("kept", DELETE),
        lambda kube: kube.remove("WalrusTopic", "second"),
        lambda kube: kube.remove("WalrusTopic", "billing"),
    ]
    crash_at_each_write(started(), acts, check, settle_topics)
    topics, resources, _ = ends[0]
    assert (list(topics), list(resources)) == ([("cluster-1", "default", "kept")], ["kept"])


def test_a_change_that_somebody_else_makes_meanwhile_is_looked_at_again():
    kube = with_topic()
    operator = Operator(kube)

    async def moved(*arguments):
        kube.topics.change("billing", **{"segment.ms": "9"})
        kube.brokers.set_topic_config = original
        return await original(*arguments)

    original, kube.brokers.set_topic_config = kube.brokers.set_topic_config, moved
    kube.put_topic("billing", {**BILLING, "retention": {"age": "2h"}})
    passed = operator.topics_once()
    assert passed.waits == {"ChangedMeanwhile"}
    settle_topics(kube)
    assert kube.topics.found("billing")["config"] == {"retention.ms": "7200000", "cleanup.policy": "delete"}


def test_topics_of_another_cluster_are_no_business_of_this_one():
    kube = started()
    kube.put("other", changed(SMALLEST))
    kube.put_topic("billing", {**BILLING, "cluster": "other"})
    assert Operator(kube).topics_once(TOPICS) is None
