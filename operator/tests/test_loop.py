"""The real loop over a simulated Kubernetes: it arrives, it stays, and a crash anywhere does not matter."""

import asyncio

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, settle_topics, status
from examples import EXAMPLES, SMALLEST, changed, with_pool
from simapi import Crash
from simkube import SimKube
from walrus_operator.objects import KINDS, Key, Ref
from walrus_operator.observe.snapshot import Replication
from walrus_operator.rbac import LEASE_RULES, NODE_RULES, RULES, UNWATCHED_RULES
from walrus_operator.runtime.definition import compare_definition
from walrus_operator.runtime.metrics import Metrics


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def set_of(kube, pool="general"):
    return kube.objects[Ref("StatefulSet", "shop", f"orders-{pool}")]


def _random(ref):
    """Another one each time; that all brokers share it, they show by speaking with each other."""
    return ("data",) if ref.kind == "Secret" else ()


def end_state(kube):
    """What is there in the end, without what only counts how it came to it, and identities of disks."""
    skipped = {"uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"}
    objects = {
        ref: {key: value for key, value in found.items() if key not in ("metadata", "status", *_random(ref))}
        | {"metadata": {key: value for key, value in found["metadata"].items() if key not in skipped}}
        for ref, found in kube.objects.items()
        if ref.kind not in ("Event", "WalrusCluster") and not ref.name.endswith("-disks")
    }
    told = {key: value for key, value in status(kube).items() if key not in ("conditions", "brokers", "clusterId")}
    states = [(row["pod"], row["state"]) for row in status(kube)["brokers"]]
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status(kube)["conditions"]}
    return {str(ref): made for ref, made in objects.items()}, told, states, conditions


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_new_cluster_becomes_ready_and_then_nothing_is_written(name):
    kube = started(EXAMPLES[name])
    assert status(kube)["phase"] == "Running"
    assert condition(kube, "Ready")["status"] == "True"
    assert condition(kube, "Quiesced")["status"] == "True"
    writes = kube.writes
    for _ in range(5):
        passed = Operator(kube).once()
        assert passed.plan.is_idle
        assert not passed.status_written
    assert kube.writes == writes


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_cluster_is_founded_and_the_founder_is_not_told_again(name):
    kube = started(EXAMPLES[name])
    assert len({disk["cluster"] for disk in kube.disks.values()}) == 1
    assert Ref("ConfigMap", "shop", "orders-bootstrap") not in kube.objects
    assert status(kube)["clusterId"] == "cluster-1"


def test_the_rollover_policy_reaches_the_brokers_and_a_change_of_it_too():
    kube = started()
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 1_000_000
    pods = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.put("orders", changed(SMALLEST, segments={"maxEntries": 500}))
    converge(kube)
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 500
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == pods
    assert status(kube)["config"] == {"version": 2, "applied": 3}


def test_a_cluster_is_founded_with_the_replication_of_its_spec():
    kube = started(changed(SMALLEST, replication={"factor": 3, "writeQuorum": 3}))
    assert kube.replication == {"cluster-1": Replication(3, 3)}
    assert status(kube)["replication"] == {"factor": 3, "writeQuorum": 3, "copiesNeeded": 3, "spareBrokers": 0}
    assert started().replication == {"cluster-1": Replication(3, 2)}


def test_replication_follows_the_spec_once_there_are_the_brokers_for_it():
    kube = started(with_pool(changed(SMALLEST, replication={"factor": 1}), replicas=1))
    assert kube.replication == {"cluster-1": Replication(1, 1)}
    kube.stuck.add("orders-general-2")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.replication == {"cluster-1": Replication(1, 1)}
    assert condition(kube, "Replicated")["reason"] == "Progressing"
    kube.stuck.clear()
    converge(kube)
    assert kube.replication == {"cluster-1": Replication(3, 2)}
    assert condition(kube, "Replicated")["status"] == "True"


def budget(kube):
    return kube.objects[Ref("PodDisruptionBudget", "shop", "orders")]["spec"]["maxUnavailable"]


def test_no_broker_may_be_evicted_while_another_is_away():
    kube = started()
    assert budget(kube) == 1
    kube.stuck.add("orders-general-1")
    kube.remove("Pod", "orders-general-1")
    converge(kube)
    assert budget(kube) == 0
    kube.stuck.clear()
    converge(kube)
    assert budget(kube) == 1


def test_a_cluster_grows_by_one_broker_at_a_time_each_after_the_last_one_serves():
    kube = started()
    kube.put("orders", with_pool(SMALLEST, replicas=6))
    seen = [3]

    def look():
        replicas = set_of(kube)["spec"]["replicas"]
        if replicas != seen[-1]:
            assert replicas == seen[-1] + 1
            ready = [name for name, pod in kube.pods().items() if pod["status"].get("conditions")]
            assert len(ready) == seen[-1]
            seen.append(replicas)

    converge(kube, each=look)
    assert seen == [3, 4, 5, 6]
    assert status(kube)["readyReplicas"] == 6
    assert len({disk["cluster"] for disk in kube.disks.values()}) == 1


def test_growth_waits_for_a_broker_that_does_not_come_up():
    kube = started()
    kube.stuck.add("orders-general-3")
    kube.put("orders", with_pool(SMALLEST, replicas=5))
    converge(kube)
    assert set_of(kube)["spec"]["replicas"] == 4
    assert status(kube)["plan"]["blockedBy"] == "PodPending"
    kube.stuck.clear()
    converge(kube)
    assert set_of(kube)["spec"]["replicas"] == 5


def test_growth_waits_for_a_broker_that_does_not_answer():
    kube = started()
    kube.down.add("orders-general-1")
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert set_of(kube)["spec"]["replicas"] == 3
    assert status(kube)["plan"]["blockedBy"] == "UnknownBroker"


@pytest.mark.parametrize(
    ("other", "gate"),
    [
        (with_pool(SMALLEST, storage={"claim": {"size": "2Gi"}}), "ResizeRefused"),
        (with_pool(SMALLEST, storage={"claim": {"size": "1Gi", "storageClassName": "fast"}}), "ResizeRefused"),
    ],
)
def test_what_is_not_done_yet_is_refused_and_not_begun(other, gate):
    kube = started()
    before = set_of(kube)["spec"]
    pods = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.put("orders", other)
    converge(kube)
    assert set_of(kube)["spec"] == before
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items() if "general" in name} == pods
    refused = condition(kube, "SpecAccepted")
    assert (refused["status"], refused["reason"], refused["observedGeneration"]) == ("False", gate, 2)
    assert "general" in refused["message"]
    assert condition(kube, "Ready")["status"] == "False"
    assert condition(kube, "Available")["status"] == "True"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "SpecAccepted")["status"] == "True"
    assert condition(kube, "Ready")["status"] == "True"


def images(kube):
    return {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()}


def test_a_deleted_pod_comes_back_on_its_claim_and_the_operator_tells():
    kube = started()
    disk = dict(kube.disks["shop", "claim", "orders-general-1"])
    kube.remove("Pod", "orders-general-1")
    Operator(kube).once()
    assert condition(kube, "Ready")["status"] == "False"
    assert status(kube)["readyReplicas"] == 2
    assert any(
        found["reason"] == "BrokerLost" and "orders-general-1" in found["message"]
        for ref, found in kube.objects.items()
        if ref.kind == "Event"
    )
    converge(kube)
    assert kube.disks["shop", "claim", "orders-general-1"] == disk
    assert condition(kube, "Ready")["status"] == "True"


def test_a_cluster_deleted_with_retain_comes_back_over_its_claims():
    kube = started()
    disks = {name: dict(disk) for name, disk in kube.disks.items()}
    kube.remove("WalrusCluster", "orders")
    while kube.step():
        pass
    assert {ref.kind for ref in kube.objects} == {"PersistentVolumeClaim", "Event"}
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.disks == disks
    assert status(kube)["clusterId"] == "cluster-1"
    assert condition(kube, "Ready")["status"] == "True"


def test_a_cluster_deleted_with_delete_takes_its_claims_along():
    kube = started(changed(SMALLEST, deletionPolicy="Delete"))
    kube.remove("WalrusCluster", "orders")
    converge(kube)
    assert {ref.kind for ref in kube.objects} == {"Event"}


def test_a_cluster_that_lost_the_founders_claim_is_not_founded_a_second_time():
    kube = started()
    kube.remove("WalrusCluster", "orders")
    while kube.step():
        pass
    kube.remove("PersistentVolumeClaim", "data-orders-general-0")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}


def test_the_founder_stays_the_founder_when_the_spec_changes_before_it_has_founded():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    Operator(kube).once()
    kube.put("orders", changed(SMALLEST, pools=[{**SMALLEST["pools"][0], "name": "first"}, *SMALLEST["pools"]]))
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_a_cluster_is_founded_when_most_of_its_brokers_are_there():
    kube = SimKube()
    kube.nodes.limit_disks(1)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {""}
    assert status(kube)["plan"]["blockedBy"] == "NotFounded"
    kube.nodes.limit_disks()
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_a_founder_that_waits_for_more_brokers_than_there_shall_be_starts_again():
    kube = SimKube()
    kube.nodes.limit_disks(3)
    kube.put("orders", with_pool(SMALLEST, replicas=9))
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {""}
    kube.put("orders", SMALLEST)
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_another_founder_is_told_when_the_pool_of_the_first_one_never_was():
    kube = SimKube()
    kube.put("orders", with_pool(SMALLEST, name="renamed"))
    kube.crash_at = 6
    with pytest.raises(Crash):
        Operator(kube).once()
    assert kube.objects[Ref("ConfigMap", "shop", "orders-bootstrap")]["data"]["name"] == "orders-renamed-0"
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_empty_claims_are_founded_once_every_broker_has_been_asked():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    Operator(kube).once()
    kube.remove("ConfigMap", "orders-bootstrap")
    kube.stuck.add("orders-general-2")
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {""}
    assert status(kube)["plan"]["blockedBy"] == "NotFounded"
    kube.stuck.clear()
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_claims_of_a_pool_that_is_not_there_any_more_keep_a_second_cluster_from_being_founded():
    kube = started()
    kube.remove("WalrusCluster", "orders")
    while kube.step():
        pass
    renamed = with_pool(SMALLEST, name="renamed")
    kube.put("orders", renamed)
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "NotFounded"
    assert "data-orders-general-0" in status(kube)["plan"]["detail"]
    kube.put("orders", changed(SMALLEST, pools=[*renamed["pools"], *SMALLEST["pools"]]))
    converge(kube)
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-1"}
    assert condition(kube, "Ready")["status"] == "True"


def test_brokers_of_two_clusters_stop_everything():
    kube = started()
    kube.disks["shop", "claim", "orders-general-2"]["cluster"] = "cluster-9"
    kube.members["cluster-9"] = {kube.disks["shop", "claim", "orders-general-2"]["disk"]: "orders-general-2"}
    kube.config["cluster-9"] = (0, {})
    kube.replication["cluster-9"] = Replication(3, 2)
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    kube.remove("Service", "orders")
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "AmbiguousIdentity"
    assert Ref("Service", "shop", "orders") not in kube.objects
    assert set_of(kube)["spec"]["replicas"] == 3


def test_a_cluster_whose_metadata_were_recovered_goes_on_under_its_other_identity():
    """What the operator remembered was taken for a second cluster, and nothing was done any more."""
    kube = started()
    lost = ["orders-general-1", "orders-general-2"]
    gone = [kube.disks.pop(("shop", "claim", pod))["disk"] for pod in lost]
    kube.recover_metadata(gone)
    for pod in lost:
        kube.remove("Pod", pod)
    kube.remove("Service", "orders")
    converge(kube)
    assert status(kube)["clusterId"] == "cluster-2"
    assert condition(kube, "Ready")["status"] == "True"
    assert Ref("Service", "shop", "orders") in kube.objects
    assert {disk["cluster"] for disk in kube.disks.values()} == {"cluster-2"}
    assert len(kube.disks) == 3


def test_a_broker_of_the_cluster_that_was_left_behind_stops_everything():
    kube = started()
    behind = kube.disks["shop", "claim", "orders-general-2"]["disk"]
    kube.recover_metadata([behind])
    kube.members["cluster-1"] = {behind: "orders-general-2"}
    kube.remove("Service", "orders")
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "AmbiguousIdentity"
    assert Ref("Service", "shop", "orders") not in kube.objects


def test_a_paused_cluster_is_looked_at_and_told_of_and_nothing_else():
    kube = started()
    kube.put("orders", with_pool(SMALLEST, replicas=4), annotations={"walrus.dev/pause": "moving house"})
    kube.remove("Service", "orders")
    kube.remove("Pod", "orders-general-2")
    before = dict(kube.calls)
    converge(kube)
    assert set_of(kube)["spec"]["replicas"] == 3
    assert Ref("Service", "shop", "orders") not in kube.objects
    assert "moving house" in status(kube)["plan"]["detail"]
    assert status(kube)["phase"] == "Paused"
    wrote = {key for key, times in kube.calls.items() if times != before.get(key, 0)}
    assert {key for key in wrote if key[0] not in ("get", "list")} == {
        ("patch", "WalrusCluster/status"),
        ("create", "Event"),
    }
    kube.put("orders", with_pool(SMALLEST, replicas=4))
    converge(kube)
    assert status(kube)["phase"] == "Running"
    assert set_of(kube)["spec"]["replicas"] == 4


def test_what_someone_deleted_or_changed_is_put_right():
    kube = started()
    kube.remove("Service", "orders")
    kube.remove("PodDisruptionBudget", "orders")
    set_of(kube)["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    converge(kube)
    assert Ref("Service", "shop", "orders") in kube.objects
    assert Ref("PodDisruptionBudget", "shop", "orders") in kube.objects
    assert set_of(kube)["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_a_stateful_set_that_someone_deleted_comes_back_whole():
    kube = started(with_pool(SMALLEST, replicas=5))
    kube.remove("StatefulSet", "orders-general")
    while kube.step():
        pass
    Operator(kube).once()
    assert set_of(kube)["spec"]["replicas"] == 5
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_a_listener_that_is_not_wanted_any_more_loses_its_service():
    kube = started(EXAMPLES["outside"])
    assert Ref("Service", "shop", "orders-grpc") in kube.objects
    kube.put("orders", changed(EXAMPLES["outside"], listeners=[{"name": "text"}]))
    converge(kube)
    assert Ref("Service", "shop", "orders-grpc") not in kube.objects
    assert [row["name"] for row in status(kube)["listeners"]] == ["text"]


def test_an_object_of_someone_else_is_left_alone():
    kube = SimKube()
    kube.objects[Ref("Service", "shop", "orders")] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "theirs", "resourceVersion": "0"},
        "spec": {"selector": {"app": "theirs"}},
    }
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.objects[Ref("Service", "shop", "orders")]["spec"] == {"selector": {"app": "theirs"}}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"


def test_a_configuration_that_brokers_refuse_is_told():
    kube = started()
    kube.refuses_config = True
    kube.put("orders", changed(SMALLEST, segments={"maxEntries": 1}))
    converge(kube)
    refused = condition(kube, "SpecAccepted")
    assert (refused["status"], refused["reason"]) == ("False", "ConfigRefused")
    assert "too small" in refused["message"]


def test_a_spec_of_a_newer_operator_is_refused_by_field():
    kube = started()
    kube.put("orders", {**SMALLEST, "backup": True})
    converge(kube)
    refused = condition(kube, "SpecAccepted")
    assert (refused["status"], refused["reason"]) == ("False", "Invalid")
    assert "spec.backup" in refused["message"]
    assert status(kube)["readyReplicas"] == 3


def test_two_clusters_in_one_namespace_do_not_know_each_other():
    kube = started()
    kube.put("payments", SMALLEST)
    converge(kube, Key("shop", "payments"))
    converge(kube)
    assert status(kube, Key("shop", "payments"))["clusterId"] == "cluster-2"
    assert status(kube)["clusterId"] == "cluster-1"


def test_a_crash_at_any_write_leads_to_the_same_end():
    """Create, grow, change policy and copies, lose a pod: dying before or after each write, and starting anew."""
    grown = with_pool(changed(SMALLEST, segments={"maxEntries": 500}, replication={"factor": 4}), replicas=4)
    ends = []

    def check(kube):
        assert len({disk["cluster"] for disk in kube.disks.values()}) == 1
        ends.append(end_state(kube))
        assert ends[-1] == ends[0]

    acts = [
        lambda kube: kube.put("orders", SMALLEST),
        lambda kube: kube.put("orders", grown),
        lambda kube: kube.remove("Pod", "orders-general-0"),
    ]
    straight = crash_at_each_write(SimKube(), acts, check)
    assert straight.calls["set", "replication"] == 1


def test_the_verbs_used_are_the_verbs_granted():
    """Over everything the operator does; `watch` is what kopf does for us."""
    kube = started(EXAMPLES["outside"])
    kube.put(
        "orders", with_pool(changed(EXAMPLES["outside"], listeners=[], networkPolicy={"enabled": False}), replicas=4)
    )
    converge(kube)
    kube.put("orders", with_pool(SMALLEST, replicas=1))
    converge(kube)
    small = SimKube()
    small.put("orders", with_pool(SMALLEST, replicas=2))
    Operator(small).once()
    small.remove("ConfigMap", "orders-bootstrap")
    converge(small)
    small.put("orders", with_pool(SMALLEST, replicas=3))
    converge(small)
    small.nodes.limit_disks(3)
    small.put("orders", with_pool(SMALLEST, replicas=4))
    converge(small)
    small.put("orders", changed(with_pool(SMALLEST, name="renamed", replicas=3), deletionPolicy="Delete"))
    small.nodes.limit_disks()
    converge(small)
    small.remove("WalrusCluster", "orders")
    converge(small)
    expandable = SimKube()
    for size in ("1Gi", "2Gi"):
        claim = {"size": size, "storageClassName": "expandable"}
        expandable.put("orders", with_pool(SMALLEST, storage={"claim": claim}))
        converge(expandable)
    kube.put_topic("billing", {"cluster": "orders", "deletionPolicy": "Delete"})
    settle_topics(kube)
    asyncio.run(compare_definition(kube, Metrics()))
    lost = started(changed(SMALLEST, lostAfter="1s"))
    lost.nodes.forget("node-1")
    converge(lost)
    folders = started(with_pool(SMALLEST, storage={"hostPath": {"path": "/var/lib/walrus-hosts"}}, allowHostPath=True))
    used = set(kube.calls) | set(small.calls) | set(lost.calls)
    used |= set(folders.calls) | set(expandable.calls)
    plural = {
        "WalrusCluster/status": "walrusclusters/status",
        "WalrusTopic/status": "walrustopics/status",
        "Pod/eviction": "pods/eviction",
        **{kind.name: kind.plural for kind in KINDS.values()},
    }
    admin = ("config", "leadership", "level", "member", "topic", "topics")
    asked = {(verb, plural[kind]) for verb, kind in used if kind not in admin}
    rules = (*RULES, *NODE_RULES)
    granted = {(verb, resource) for _, resource, verbs in rules for verb in verbs if verb != "watch"}
    assert granted - asked == {("list", "walrusclusters")}  # by the resync
    assert {(verb, resource) for _, resource, verbs in UNWATCHED_RULES for verb in verbs} <= granted
    assert asked - granted == set()
    assert {resource for _, resource, _ in LEASE_RULES} == {"leases"}
