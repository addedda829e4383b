"""A cluster that is as it shall be costs Kubernetes next to nothing: mostly its brokers alone are asked."""

from dataclasses import replace

from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST
from simkube import SimKube
from walrus_operator.objects import Ref
from walrus_operator.resting import WHOLE_S

SERVICE = Ref("Service", "shop", "orders")


class Counted(SimKube):
    """Counts what is read of it."""

    reads = 0

    async def get(self, ref):
        self.reads += 1
        return await super().get(ref)

    async def list(self, kind, namespace, selector=""):
        self.reads += 1
        return await super().list(kind, namespace, selector)


class Clocked:
    """One operator that looks at the cluster, at times that a test says."""

    def __init__(self, kube):
        self.kube, self.seconds = kube, 0.0
        self.operator = Operator(kube)
        self.operator.reconciler._monotonic = lambda: self.seconds

    def look(self, *, asked=False):
        """One pass. Returns how much it read."""
        before = self.kube.reads
        self.passed = self.operator.once(asked=asked)
        return self.kube.reads - before

    def after(self, seconds):
        """One pass so much later, for which nobody asks."""
        self.seconds += seconds
        return self.look()


def at_rest():
    kube = Counted()
    kube.put("orders", SMALLEST)
    converge(kube)
    clocked = Clocked(kube)
    assert clocked.look(asked=True) > 0
    return clocked


def test_a_cluster_at_rest_is_read_once_a_minute():
    clocked = at_rest()
    whole = clocked.look(asked=True)
    assert [clocked.after(20) for _ in range(6)] == [0, 0, whole, 0, 0, whole]
    assert clocked.passed.plan.is_idle
    assert clocked.passed.again_s == 20
    assert whole / WHOLE_S <= 0.25


def test_a_look_that_someone_asks_for_is_a_whole_one():
    clocked = at_rest()
    clocked.kube.put("orders", {**SMALLEST, "segments": {"maxEntries": 7}})
    assert clocked.look(asked=True) > 0
    assert clocked.kube.config["cluster-1"][1]["segments.max_entries"] == 7


def test_what_brokers_tell_is_seen_at_once_and_told():
    clocked = at_rest()
    look = clocked.kube.brokers.look

    async def full(host):
        return replace(await look(host), bytes_free=1)

    clocked.kube.brokers.look = full
    assert clocked.after(20) > 0
    assert condition(clocked.kube, "StorageHealthy")["reason"] == "DiskPressure"


def test_a_configuration_that_someone_changed_is_put_right():
    clocked = at_rest()
    version, entries = clocked.kube.config["cluster-1"]
    clocked.kube.config["cluster-1"] = version + 1, {**entries, "segments.max_entries": 3}
    assert clocked.after(20) > 0
    assert clocked.kube.config["cluster-1"][1] == entries


def test_what_is_done_begins_with_what_is_there():
    """What was seen before has a pod that is gone by now."""
    clocked = at_rest()
    clocked.kube.remove("Pod", "orders-general-0")
    assert clocked.after(20) > 0
    assert clocked.passed.gates == {"PodPending"}
    assert "RollPod" not in clocked.passed.acts
    assert [row["state"] for row in status(clocked.kube)["brokers"]].count("Serving") == 2


def test_what_no_watch_tells_of_is_put_right_within_a_minute():
    clocked = at_rest()
    clocked.kube.remove(SERVICE.kind, SERVICE.name)
    assert clocked.after(20) == 0
    assert SERVICE not in clocked.kube.objects
    clocked.after(WHOLE_S)
    assert SERVICE in clocked.kube.objects


def test_a_cluster_that_is_not_at_rest_is_always_read():
    clocked = at_rest()
    clocked.kube.put("orders", {**SMALLEST, "unknown": 1})
    clocked.look(asked=True)
    assert all(clocked.after(1) > 0 for _ in range(4))


def test_a_cluster_that_is_gone_is_forgotten():
    clocked = at_rest()
    clocked.kube.remove("WalrusCluster", "orders")
    clocked.kube.down.update(f"orders-general-{ordinal}" for ordinal in range(3))
    clocked.after(20)
    assert clocked.operator.reconciler._resting.seen(KEY, clocked.seconds) is None
