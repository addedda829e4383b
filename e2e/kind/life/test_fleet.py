"""Many clusters and many topics at rest cost next to nothing."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import pytest
from harness.kube.cluster import Cluster
from harness.kube.figures import note, slowness, timed
from harness.kube.installed import WRITES, Installed
from harness.kube.kubectl import Kubectl, NewNamespace, Object
from harness.waiting import wait_until

CLUSTERS = 20
TOPICS = 1_000
WATCHED_S = 120  # What is measured is this span at rest; nothing is waited for in it.
READY = "R:.status.conditions[?(@.type=='Ready')].status"
TICKS = 100  # Linux counts the time of processes in hundredths of a second.


@pytest.fixture
def topics(orders: Cluster) -> Iterator[Kubectl]:
    """Where many topics are made, which are gone afterwards."""
    yield orders.kubectl
    orders.kubectl("delete", "wt", "--selector=many", "--timeout=300s")


def test_a_thousand_topics_are_ready_within_a_minute_and_cost_nothing_at_rest(
    operator: Installed, topics: Kubectl
) -> None:
    kubectl = topics
    kubectl.apply(*(topic(f"many-{number}") for number in range(TOPICS)))
    with timed(f"{TOPICS} WalrusTopics, from the last apply to Ready", limit_s=60):
        wait_until("all topics", lambda: ready(kubectl) == TOPICS, timeout_s=300, every_s=0.5)
    wait_quiet(operator)
    calls = operator.metrics("walrus_operator_calls_total")
    asked = len(operator.requests())
    time.sleep(WATCHED_S)
    called = operator.metrics("walrus_operator_calls_total")
    more = {labels: value - calls.get(labels, 0) for labels, value in called.items() if value > calls.get(labels, 0)}
    note(f"calls in {WATCHED_S} s of {TOPICS} topics at rest", sum(more.values()), "calls", limit=TOPICS / 10)
    note(f"requests of Kubernetes in {WATCHED_S} s", len(operator.requests()) - asked, "requests", limit=TOPICS / 4)


def ready(kubectl: Kubectl) -> int:
    """How many of the topics are ready. `kubectl wait` asks for each of them, and takes as long as the operator."""
    said = kubectl("get", "wt", "--selector=many", "--no-headers", "--output=custom-columns=" + READY)
    return said.split().count("True")


def topic(name: str) -> Object:
    """A topic of one copy, which goes with its resource."""
    return {
        "apiVersion": "walrus.dev/v1alpha1",
        "kind": "WalrusTopic",
        "metadata": {"name": name, "labels": {"many": "true"}},
        "spec": {"cluster": "orders", "replicationFactor": 1, "deletionPolicy": "Delete"},
    }


def test_twenty_clusters_at_rest_take_little_of_the_operator_and_of_kubernetes(
    operator: Installed, new_namespace: NewNamespace
) -> None:
    # A new operator is measured, which has looked after nothing else: Python gives little memory back to the system.
    operator.kill()
    kubectl = new_namespace("fleet")
    clusters = [Cluster(kubectl, f"small-{number}") for number in range(CLUSTERS)]
    with timed(f"{CLUSTERS} clusters of one broker, from apply to Ready"):
        kubectl.apply(*(small(cluster.name) for cluster in clusters))
        for cluster in clusters:
            cluster.wait_ready(timeout_s=600)
    wait_quiet(operator)
    began, used, seen = time.monotonic(), operator.cpu_ticks(), len(operator.requests())
    time.sleep(WATCHED_S)
    took, spent = time.monotonic() - began, operator.cpu_ticks() - used
    requests = operator.requests()[seen:]
    kinds = Counter((one["verb"], one["objectRef"]["resource"]) for one in requests)
    # The volumes of all clusters are on one disk here, so another cluster may well tell that it fills up.
    ours = [one for one in requests if one["objectRef"].get("namespace") == kubectl.namespace]
    written = [one["objectRef"] for one in ours if one["verb"] in WRITES]
    assert not written, written
    reads = sum(number for (verb, resource), number in kinds.items() if verb not in WRITES and resource != "leases")
    note(f"{CLUSTERS} clusters at rest: share of a core", spent / TICKS / took, "", limit=0.02, slowness=slowness())
    note(f"{CLUSTERS} clusters at rest: memory of the operator", operator.resident_kib() / 1024, "MiB", limit=160)
    note(f"{CLUSTERS} clusters at rest: reads for each", reads / took / CLUSTERS, "/s", limit=0.25)


def small(name: str) -> Object:
    """A cluster of one broker."""
    pools = [{"name": "general", "replicas": 1, "storage": {"claim": {"size": "1Gi"}}}]
    spec = {"version": "0.1.0", "deletionPolicy": "Delete", "replication": {"factor": 1}, "pools": pools}
    return {"apiVersion": "walrus.dev/v1alpha1", "kind": "WalrusCluster", "metadata": {"name": name}, "spec": spec}


def wait_quiet(operator: Installed) -> None:
    """Waits until the operator has written nothing for a minute."""

    def is_quiet() -> bool:
        last = datetime.fromisoformat(operator.writes()[-1]["requestReceivedTimestamp"])
        return (datetime.now(last.tzinfo) - last).total_seconds() > 60

    wait_until("a minute without a write", is_quiet, timeout_s=420, every_s=2)
