"""All brokers stop together and come back together; what is theirs stays, whatever happens meanwhile."""

from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import OUTSIDE, SMALLEST, changed, with_pool
from simkube import SimKube
from walrus_operator.objects import Ref

SET = Ref("StatefulSet", "shop", "orders-general")
TWO_POOLS = changed(
    SMALLEST, pools=[*SMALLEST["pools"], {"name": "more", "replicas": 2, "storage": {"claim": {"size": "1Gi"}}}]
)


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def asleep(spec):
    return changed(spec, hibernate=True)


def kinds(kube, *names):
    return {ref for ref in kube.objects if ref.kind in names}


def events(kube):
    return [found["reason"] for ref, found in kube.objects.items() if ref.kind == "Event"]


def test_all_brokers_stop_and_come_back_with_their_disks_while_claims_and_services_stay():
    kube = started(OUTSIDE)
    before, identities = kinds(kube, "PersistentVolumeClaim", "Service"), dict(kube.disks)
    kube.put("orders", asleep(OUTSIDE))
    Operator(kube).once()
    assert kube.objects[SET]["spec"]["replicas"] == 0
    converge(kube)
    assert (kube.pods(), status(kube)["phase"]) == ({}, "Hibernated")
    for type_ in ("Ready", "Available"):
        assert (condition(kube, type_)["status"], condition(kube, type_)["reason"]) == ("False", "Hibernated")
    assert kinds(kube, "PersistentVolumeClaim", "Service") == before
    assert "BrokerLost" not in events(kube)
    assert Operator(kube).once().plan.is_idle
    kube.put("orders", OUTSIDE)
    Operator(kube).once()
    assert kube.objects[SET]["spec"]["replicas"] == 3
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert kube.disks == identities
    assert {"Hibernated", "Woken"} <= set(events(kube))
    assert "walrus.dev/hibernated" not in kube.objects[SET]["metadata"]["annotations"]


def test_while_brokers_stop_the_status_names_those_that_are_left():
    kube = started()
    kube.put("orders", asleep(SMALLEST))
    operator = Operator(kube)
    operator.once()
    operator.once()
    assert status(kube)["phase"] == "Hibernating"
    assert "orders-general-0" in condition(kube, "Ready")["message"]
    assert condition(kube, "Progressing")["status"] == "True"


def test_what_changes_meanwhile_is_there_when_they_wake_up_without_a_roll():
    kube = started()
    kube.put("orders", asleep(SMALLEST))
    converge(kube)
    kube.put("orders", asleep(with_pool(changed(SMALLEST, version="2.0.0"), replicas=5)))
    converge(kube)
    assert kube.pods() == {}
    kube.put("orders", with_pool(changed(SMALLEST, version="2.0.0"), replicas=5))
    evictions = kube.calls["create", "Pod/eviction"]
    Operator(kube).once()
    assert kube.objects[SET]["spec"]["replicas"] == 3
    converge(kube)
    assert kube.calls["create", "Pod/eviction"] == evictions
    assert status(kube)["readyReplicas"] == 5
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:2.0.0"}


def test_brokers_that_someone_added_by_hand_and_that_joined_come_back_too():
    kube = started()
    kube.scale("orders-general", 4)
    for _ in range(5):
        kube.step()
    kube.put("orders", asleep(SMALLEST))
    converge(kube)
    assert kube.pods() == {}
    kube.put("orders", SMALLEST)
    Operator(kube).once()
    assert kube.objects[SET]["spec"]["replicas"] == 4
    converge(kube)
    assert len(kube.pods()) == 3
    assert len(kube.members["cluster-1"]) == 3


def test_whoever_scales_a_cluster_that_hibernates_is_not_believed():
    kube = started()
    kube.put("orders", asleep(SMALLEST))
    converge(kube)
    kube.scale("orders-general", 1)
    converge(kube)
    assert kube.pods() == {}


def test_of_brokers_that_were_stopped_all_wake_up_before_those_go_that_nobody_asks_for():
    kube = started(with_pool(SMALLEST, replicas=5))
    kube.put("orders", asleep(with_pool(SMALLEST, replicas=5)))
    converge(kube)
    kube.put("orders", SMALLEST)
    Operator(kube).once()
    assert kube.objects[SET]["spec"]["replicas"] == 5
    converge(kube)
    assert status(kube)["readyReplicas"] == 3
    assert len(kube.members["cluster-1"]) == 3


def test_a_refused_spec_does_not_put_a_cluster_to_sleep_and_one_that_sleeps_sleeps_on():
    kube = started()
    kube.put("orders", {**asleep(SMALLEST), "unknown": 1})
    converge(kube)
    assert len(kube.pods()) == 3
    kube.put("orders", asleep(SMALLEST))
    converge(kube)
    kube.put("orders", {**SMALLEST, "unknown": 1})
    converge(kube)
    assert (kube.pods(), condition(kube, "SpecAccepted")["reason"]) == ({}, "Invalid")


def test_a_cluster_that_begins_asleep_is_founded_when_it_wakes_up():
    kube = started(asleep(SMALLEST))
    assert (kube.pods(), status(kube)["phase"]) == ({}, "Hibernated")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert len({disk["cluster"] for disk in kube.disks.values()}) == 1


def test_a_paused_cluster_neither_falls_asleep_nor_wakes_up():
    kube = started()
    kube.put("orders", asleep(SMALLEST), annotations={"walrus.dev/pause": "not now"})
    converge(kube)
    assert len(kube.pods()) == 3


def test_an_operator_that_dies_at_any_write_of_the_story_changes_nothing_of_its_end():
    newer = changed(TWO_POOLS, version="2.0.0")

    def check(kube):
        assert len(kube.pods()) == 5
        assert condition(kube, "Ready")["status"] == "True"
        assert len({disk["cluster"] for disk in kube.disks.values()}) == 1

    def wake(kube):
        assert len(kube.pods()) == 0
        kube.put("orders", newer)

    crash_at_each_write(
        started(TWO_POOLS),
        [
            lambda kube: kube.put("orders", asleep(TWO_POOLS)),
            lambda kube: kube.put("orders", asleep(newer)),
            wake,
        ],
        check,
    )
