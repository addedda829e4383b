"""Whatever users, faults and crashes do in whatever order: the invariants hold at each step, and in the end it heals.

I1: the operator takes away one broker at a time, and only while all others serve. I4: the number of brokers changes by
one, and only upwards. I5: no claim and no StatefulSet is ever deleted. I6: what has arrived writes nothing. I7: what
is unknown is not built upon. I8: a crash changes nothing. I9: a paused cluster is only told of. And: one cluster is
founded once.
"""

from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from simkube import Crash, SimKube
from walrus_operator.objects import POD, STATEFUL_SET, Ref

SPECS = [
    SMALLEST,
    with_pool(SMALLEST, replicas=1),
    with_pool(SMALLEST, replicas=2),
    with_pool(SMALLEST, replicas=5),
    with_pool(SMALLEST, backend="direct"),
    changed(SMALLEST, version="2.0.0", segments={"maxEntries": 7}),
    changed(SMALLEST, listeners=[{"name": "grpc", "type": "NodePort"}]),
    changed(
        SMALLEST, pools=[*SMALLEST["pools"], {"name": "more", "replicas": 2, "storage": {"claim": {"size": "1Gi"}}}]
    ),
    changed(SMALLEST, pools=[{"name": "renamed", "storage": {"claim": {"size": "1Gi"}}}]),
    {**SMALLEST, "unknown": 1},
]
PODS = [f"orders-{pool}-{ordinal}" for pool in ("general", "more") for ordinal in range(3)]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.integers(1, 6)),
        st.tuples(st.just("spec"), st.sampled_from(range(len(SPECS)))),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("crash"), st.tuples(st.integers(1, 8), st.booleans())),
        st.tuples(st.sampled_from(["lose", "silence", "wake", "stick", "free"]), st.sampled_from(PODS)),
        st.tuples(
            st.just("delete"),
            st.sampled_from(
                [
                    ("Service", "orders-brokers"),
                    ("ConfigMap", "orders-bootstrap"),
                    ("ConfigMap", "orders-config"),
                    ("StatefulSet", "orders-general"),
                    ("WalrusCluster", "orders"),
                ]
            ),
        ),
    ),
    max_size=25,
)


class Watched(SimKube):
    """Looks at every write of the operator."""

    paused = False

    async def apply(self, manifest):
        assert not self.paused
        if manifest["kind"] == STATEFUL_SET.name:
            found = self.objects.get(Ref(STATEFUL_SET.name, "shop", manifest["metadata"]["name"]))
            wanted = manifest["spec"]["replicas"]
            if found is not None:
                had = found["spec"]["replicas"]
                assert had <= wanted <= had + 1
                if wanted == had + 1:
                    self._everyone_serves()
        return await super().apply(manifest)

    async def delete(self, ref, uid):
        assert not self.paused
        assert ref.kind in ("ConfigMap", "Service", "Pod")
        if ref.kind == POD.name:
            pod = self.objects.get(ref)
            if pod is not None and pod["status"].get("conditions"):
                self._everyone_serves()
        await super().delete(ref, uid)

    def _everyone_serves(self):
        """Growth and a roll build upon brokers that are known to serve."""
        for ref, pod in self.objects.items():
            if ref.kind == POD.name:
                assert pod["status"].get("conditions"), ref
                assert ref.name not in self.down, ref


@settings(derandomize=True, deadline=None, max_examples=80)
@given(OPERATIONS)
def test_the_invariants_hold_and_it_heals(operations):
    kube = Watched()
    kube.put("orders", SMALLEST)
    spec = SMALLEST
    for what, value in operations:
        match what:
            case "passes":
                passes(kube, value)
            case "spec":
                spec = SPECS[value]
                put(kube, spec)
            case "pause":
                kube.paused = value
                put(kube, spec)
            case "crash":
                kube.crash_at, kube.crash_before = kube.writes + value[0], value[1]
            case "lose":
                kube.remove("Pod", value)
            case "silence":
                kube.down.add(value)
            case "wake":
                kube.down.discard(value)
            case "stick":
                kube.stuck.add(value)
            case "free":
                kube.stuck.discard(value)
            case "delete":
                kube.remove(*value)
                if value[0] == "WalrusCluster":
                    while kube.step():
                        pass
                    put(kube, spec)
        assert len({disk["cluster"] for disk in kube.disks.values()} - {""}) <= 1
    heal(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert len({disk["cluster"] for disk in kube.disks.values()}) == 1
    writes = kube.writes
    assert Operator(kube).once().plan.settled
    assert kube.writes == writes


def put(kube, spec):
    kube.put("orders", spec, annotations={"walrus.dev/pause": ""} if kube.paused else None)


def passes(kube, number):
    operator = Operator(kube)
    for _ in range(number):
        try:
            operator.once()
        except Crash:
            operator = Operator(kube)
        kube.step()


def heal(kube):
    """Faults end, and the spec is one that fits what is there."""
    kube.down.clear()
    kube.stuck.clear()
    kube.crash_at = None
    kube.paused = False
    put(kube, fitting(kube))
    converge(kube, KEY)


def fitting(kube):
    """A spec of the pools that are there, as they are, or were when their claims were made."""
    pools, image = {"general": {"replicas": 3}}, None
    for ref in kube.objects:
        if ref.kind == "PersistentVolumeClaim":
            pool, _, ordinal = ref.name.removeprefix("data-orders-").rpartition("-")
            replicas = max(int(ordinal) + 1, pools.get(pool, {}).get("replicas", 0))
            pools[pool] = {"replicas": replicas}
    for ref, found in kube.objects.items():
        if ref.kind == STATEFUL_SET.name:
            pool = pools.setdefault(ref.name.removeprefix("orders-"), {"replicas": 0})
            container = found["spec"]["template"]["spec"]["containers"][0]
            image = container["image"]
            env = {one["name"]: one.get("value") for one in container["env"]}
            pool["backend"] = env["WALRUS_BACKEND"]
            pool["replicas"] = max(pool["replicas"], found["spec"]["replicas"])
    listed = [{"name": name, "storage": {"claim": {"size": "1Gi"}}, **facts} for name, facts in sorted(pools.items())]
    return {"image": image or "walrus/walrus-node:1.0.0", "pools": listed}
