"""Another spec restarts brokers one after the other: followers first, the leader last, and only while all are well."""

import pytest
from driving import Operator, condition, converge, status
from examples import POOLS, SMALLEST, changed, with_pool
from simapi import is_ready
from simkube import SimKube
from walrus_operator.objects import POD

NEWER = changed(SMALLEST, version="2.0.0")


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def images(kube):
    return {name: pod["spec"]["containers"][0]["image"].rpartition(":")[2] for name, pod in kube.pods().items()}


def restarted(kube, spec, annotations=None):
    """The pods in the order in which they were replaced; at each moment all others serve."""
    order, known = [], uids(kube)
    kube.put("orders", spec, annotations=annotations)

    def look():
        now = uids(kube)
        order.extend(name for name, uid in now.items() if known.get(name) not in (None, uid))
        known.update(now)
        away = set(known) - {ref.name for ref, pod in kube.objects.items() if ref.kind == POD.name and is_ready(pod)}
        assert len(away) <= 1

    converge(kube, each=look)
    return order


@pytest.mark.parametrize(
    "spec",
    [
        NEWER,
        with_pool(SMALLEST, backend="direct"),
        changed(SMALLEST, fsync={"mode": "never"}),
        with_pool(SMALLEST, resources={"limits": {"memory": "2Gi"}}),
        with_pool(SMALLEST, nodeSelector={"disk": "fast"}),
    ],
)
@pytest.mark.parametrize("leader", [None, "orders-general-1"])
def test_followers_restart_first_and_the_leader_last(spec, leader):
    kube = started()
    kube.leader = leader
    leader = status(kube)["leader"] if leader is None else leader
    order = restarted(kube, spec)
    assert sorted(order) == sorted(kube.pods())
    assert order[-1] == leader
    assert condition(kube, "Ready")["status"] == "True"
    assert status(kube)["pools"] == [
        {"name": "general", "desired": 3, "replicas": 3, "ready": 3, "updated": 3, "storage": "1Gi"}
    ]


def test_while_it_rolls_the_cluster_is_available_and_not_ready():
    kube = started()
    kube.put("orders", NEWER)
    Operator(kube).once()
    kube.step()
    assert Operator(kube).once().plan.outdated == ("orders-general-0", "orders-general-1", "orders-general-2")
    told = status(kube)
    assert (told["phase"], told["pools"][0]["updated"]) == ("Rolling", 0)
    assert (condition(kube, "Ready")["status"], condition(kube, "Ready")["reason"]) == ("False", "Progressing")
    assert condition(kube, "Available")["status"] == "True"


def test_all_pools_roll_and_never_two_brokers_at_once():
    kube = started(POOLS)
    order = restarted(kube, changed(POOLS, fsync={"mode": "each"}))
    assert sorted(order) == sorted(kube.pods())


def test_a_single_broker_restarts_where_it_stands():
    single = changed(with_pool(SMALLEST, replicas=1), replication={"factor": 1})
    kube = started(single)
    kube.keep = ["the metadata would have no majority of its voters"]
    assert restarted(kube, changed(single, version="2.0.0")) == ["orders-general-0"]
    assert condition(kube, "Ready")["status"] == "True"


def test_a_broker_that_the_others_cannot_do_without_is_not_stopped():
    kube = started()
    kube.keep = ["2 open segments would have too few replicas"]
    before = uids(kube)
    kube.put("orders", NEWER)
    converge(kube)
    assert uids(kube) == before
    assert status(kube)["plan"]["blockedBy"] == "QuorumTight"
    assert "2 open segments would have too few replicas" in status(kube)["plan"]["detail"]
    kube.keep = []
    converge(kube)
    assert set(images(kube).values()) == {"2.0.0"}


def test_the_next_one_waits_until_the_last_one_has_caught_up():
    kube = started()
    kube.behind = {"orders-general-1"}
    kube.put("orders", NEWER)
    converge(kube)
    assert list(images(kube).values()).count("2.0.0") == 1
    assert status(kube)["plan"]["blockedBy"] == "NotCaughtUp"
    assert "orders-general-1 lacks copies" in status(kube)["plan"]["detail"]
    kube.behind.clear()
    converge(kube)
    assert set(images(kube).values()) == {"2.0.0"}


def test_a_pod_that_is_stuck_stops_the_roll_and_the_former_spec_brings_it_back():
    kube = started()
    kube.broken.add("walrus/walrus-node:2.0.0")
    kube.put("orders", NEWER)
    converge(kube)
    assert sorted(images(kube).values()) == ["1.0.0", "1.0.0", "2.0.0"]
    assert status(kube)["plan"]["blockedBy"] == "PodPending"
    assert "ErrImagePull" in status(kube)["plan"]["detail"]
    kept = {name for name, image in images(kube).items() if image == "1.0.0"}
    before = uids(kube)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert set(images(kube).values()) == {"1.0.0"}
    assert {name: uids(kube)[name] for name in kept} == {name: before[name] for name in kept}
    assert condition(kube, "Ready")["status"] == "True"


def test_brokers_that_never_ran_are_made_anew_when_the_spec_is_put_right():
    kube = SimKube()
    kube.broken.add("walrus/walrus-node:1.0.0")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert status(kube)["plan"]["blockedBy"] == "NotFounded"
    kube.put("orders", NEWER)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"


def test_a_roll_waits_for_a_broker_that_is_away():
    kube = started()
    kube.down.add("orders-general-2")
    before = uids(kube)
    kube.put("orders", NEWER)
    converge(kube)
    assert uids(kube) == before
    assert status(kube)["plan"]["blockedBy"] == "UnknownBroker"


def test_a_pod_is_not_deleted_before_kubernetes_knows_what_to_make_of_it():
    kube = started()
    before = uids(kube)
    kube.put("orders", NEWER)
    for _ in range(3):
        Operator(kube).once()  # the StatefulSet's controller is away
    assert uids(kube) == before
    assert status(kube)["plan"]["blockedBy"] == "PodPending"
    converge(kube)
    assert set(images(kube).values()) == {"2.0.0"}


def test_what_changes_while_brokers_run_restarts_none():
    kube = started()
    before = uids(kube)
    kube.put(
        "orders", changed(SMALLEST, segments={"maxEntries": 5}, deletionPolicy="Delete", replication={"factor": 1})
    )
    converge(kube)
    assert uids(kube) == before
    assert condition(kube, "Ready")["status"] == "True"


class Asked(SimKube):
    """Remembers how many members the cluster had when each pod was to be evicted, whatever its budget said then."""

    def __init__(self):
        super().__init__()
        self.asked = []

    async def evict(self, ref, uid):
        self.asked.append((ref.name, len(self.members["cluster-1"])))
        await super().evict(ref, uid)


def test_a_pod_that_is_away_for_a_moment_does_not_make_a_cluster_one_that_can_spare_nobody():
    """Two of three brokers had joined. While the third one's pod was made anew, nobody was asked whether one of the two
    may stop, as in a cluster of two: without it there was no majority, and only the budget refused its eviction.
    """
    kube = Asked()
    kube.nodes.limit_disks(2)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert len(kube.members["cluster-1"]) == 2
    kube.nodes.limit_disks()
    kube.put("orders", NEWER)
    converge(kube)
    assert [members for name, members in kube.asked if name != "orders-general-2"] == [3, 3]
    assert set(images(kube).values()) == {"2.0.0"}
    assert condition(kube, "Ready")["status"] == "True"
