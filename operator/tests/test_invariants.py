"""Whatever users, faults and crashes do in whatever order: the invariants hold at each step, and in the end it heals.

I1: the operator takes away one broker at a time: one that serves only while all others of the cluster do, one that
does not only where nobody misses it; and none past the budget. I4: the number of brokers changes by one, downwards
only by one that is no member; a member goes only once it is empty; what someone scaled away comes back at once. I5:
no StatefulSet is deleted that asks for pods, but one that is noted, leaves its pods and comes back as it was; no claim
becomes smaller, and none is deleted that ever had a volume, but those of a deleted cluster, or of disks that left it,
whose spec said so, and of disks that were lost with their nodes: one at a time. I6: what has arrived writes nothing.
I7: what is unknown is not built upon. I8: a crash changes nothing. I9: a paused cluster is only told of. And: one
cluster is founded once. What is refused or foreign is never touched. And: the level rises only where every member knows
it, and no broker that serves is made one of a release that knows less than its cluster uses.
"""

import json
from copy import deepcopy
from functools import cache
from math import inf
from typing import ClassVar

from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from simapi import Crash, is_ready
from simbrokers import FIRST_LEVEL, SimRelease
from simkube import SimKube
from simvolumes import EXPANDABLE
from walrus_operator.api.releases import Release, Wire
from walrus_operator.api.units import amount_of
from walrus_operator.desired.statefulset import PodInputs
from walrus_operator.kube.api import Denied, Refused, Unreachable
from walrus_operator.objects import CLAIM, POD, STATEFUL_SET, Ref, uid_of
from walrus_operator.observe.machines import ZONE, Machine, Volume

CLUSTER = Ref("WalrusCluster", "shop", "orders")
SET = Ref("StatefulSet", "shop", "orders-general")
ACCEPTED = Ref("ConfigMap", "shop", "orders-accepted")
REMADE = Ref("ConfigMap", "shop", "orders-remade")
SPECS = [
    SMALLEST,
    with_pool(SMALLEST, replicas=1),
    with_pool(SMALLEST, replicas=2),
    with_pool(SMALLEST, replicas=5),
    with_pool(SMALLEST, backend="direct"),
    changed(SMALLEST, version="2.0.0", segments={"maxEntries": 7}),
    changed(SMALLEST, version="2.0.0", updatePolicy={"finalize": "Manual"}),
    changed(SMALLEST, listeners=[{"name": "grpc", "type": "NodePort"}]),
    changed(
        SMALLEST, pools=[*SMALLEST["pools"], {"name": "more", "replicas": 2, "storage": {"claim": {"size": "1Gi"}}}]
    ),
    changed(SMALLEST, pools=[{"name": "renamed", "storage": {"claim": {"size": "1Gi"}}}]),
    {**SMALLEST, "unknown": 1},
    changed(SMALLEST, deletionPolicy="Delete"),
    changed(SMALLEST, version="sick"),
    with_pool(changed(SMALLEST, version="2.0.0", replication={"factor": 1}), replicas=1),
    with_pool(SMALLEST, storage={"claim": {"size": "2Gi"}}),
    with_pool(changed(SMALLEST, deletionPolicy="Delete", version="2.0.0"), storage={"claim": {"size": "3Gi"}}),
    changed(SMALLEST, hibernate=True),
    changed(SMALLEST, config={"dynamic": {"copies.moves_max": 3, "log.level": "debug"}}),
    changed(SMALLEST, topology={"required": True}),
    changed(SMALLEST, topology={"spread": "host", "required": True}),
    changed(SMALLEST, topology={"spread": "host"}),
    with_pool(SMALLEST, zone="a"),
]
ROLL, DRAIN = "walrus.dev/roll", "walrus.dev/drain"
NODES = [f"node-{number}" for number in range(3)]
PODS = [f"orders-{pool}-{ordinal}" for pool in ("general", "more") for ordinal in range(3)]
REFUSED = [
    Ref("Service", "shop", "orders"),
    Ref("ConfigMap", "shop", "orders-accepted"),
    Ref("ConfigMap", "shop", "orders-config"),
    Ref("PodDisruptionBudget", "shop", "orders"),
    SET,
    *(Ref("Pod", "shop", name) for name in PODS[:2]),
]
ERRORS = [Refused("no"), Denied("exceeded quota"), Unreachable("failed calling webhook")]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.integers(1, 6)),
        st.tuples(st.just("spec"), st.sampled_from(range(len(SPECS)))),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("order"), st.sampled_from([{}, {ROLL: "1"}, {ROLL: "2"}, {DRAIN: 0}, {DRAIN: 1, ROLL: "1"}])),
        st.tuples(st.just("crash"), st.tuples(st.integers(1, 8), st.booleans())),
        st.tuples(
            st.sampled_from(["lose", "silence", "wake", "stick", "free", "evict", "unready", "newer"]),
            st.sampled_from(PODS),
        ),
        st.tuples(
            st.sampled_from(["cordon", "uncordon", "drain", "fail", "give_up", "forget", "back", "crowd"]),
            st.sampled_from(NODES),
        ),
        st.tuples(st.just("zone"), st.tuples(st.sampled_from(NODES), st.sampled_from(["a", "b", "c", None]))),
        st.tuples(st.just("disks"), st.sampled_from([2, 3, 4, inf])),
        st.tuples(st.just("scale"), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.tuples(st.sampled_from(REFUSED), st.sampled_from(ERRORS))),
        st.tuples(st.sampled_from(["allow", "orphan"]), st.just(None)),
        st.tuples(st.just("foreign"), st.sampled_from(["data-orders-general-3", "data-orders-more-0", "pod"])),
        st.tuples(
            st.just("delete"),
            st.sampled_from(
                [
                    ("Service", "orders-brokers"),
                    ("ConfigMap", "orders-bootstrap"),
                    ("ConfigMap", "orders-config"),
                    ("ConfigMap", "orders-accepted"),
                    ("Secret", "orders-shared-secret"),
                    ("PodDisruptionBudget", "orders"),
                    ("StatefulSet", "orders-general"),
                    ("WalrusCluster", "orders"),
                ]
            ),
        ),
    ),
    max_size=25,
)


SIZES = [
    SMALLEST,
    *(with_pool(SMALLEST, storage={"claim": {"size": size}}) for size in ("2Gi", "2560Mi", "3Gi")),
    with_pool(changed(SMALLEST, deletionPolicy="Delete"), storage={"claim": {"size": "3Gi"}}),
    with_pool(SMALLEST, storage={"claim": {"size": "2Gi"}}, replicas=4),
    with_pool(changed(SMALLEST, version="2.0.0"), storage={"claim": {"size": "2Gi"}}),
    with_pool(changed(SMALLEST, hibernate=True), storage={"claim": {"size": "3Gi"}}),
    *(
        with_pool(SMALLEST, storage={"claim": {"size": "1Gi", "autoGrow": {"at": 80, "step": "512Mi", "max": most}}})
        for most in ("1Gi", "2Gi", "4Gi")
    ),
]
GROWTH = st.tuples(st.just("size"), st.sampled_from(range(len(SIZES))))
RESIZING = st.lists(
    st.tuples(
        st.one_of(
            GROWTH,
            GROWTH,
            st.tuples(st.just("fill"), st.tuples(st.sampled_from(PODS[:3]), st.sampled_from([0, 850, 1300, 3900]))),
            st.tuples(st.just("crash"), st.tuples(st.integers(1, 8), st.booleans())),
            st.tuples(st.just("quota"), st.sampled_from(["4Gi", "7Gi", None])),
            st.tuples(st.just("driver"), st.booleans()),
            st.tuples(
                st.sampled_from(["infeasible", "offline", "lose", "silence", "wake", "unready"]),
                st.sampled_from(PODS[:3]),
            ),
            st.tuples(st.just("scale"), st.integers(0, 5)),
            st.tuples(st.just("pause"), st.booleans()),
            st.tuples(st.just("delete"), st.just(("StatefulSet", "orders-general"))),
        ),
        st.tuples(st.just("passes"), st.integers(0, 15)),
    ),
    min_size=3,
    max_size=12,
)


class Watched(SimKube):
    """Looks at every write of the operator."""

    paused = False
    adopts = False
    orders: ClassVar = {}

    def __init__(self):
        super().__init__()
        self.taken = set()  # by the operator's hand
        self.given_up = set()  # disks whose nodes are gone
        self.sick.add("walrus/walrus-node:sick")
        self.table = (Release("1.0.0", Wire(3, 3), FIRST_LEVEL), Release("2.0.0", Wire(3, 4), FIRST_LEVEL + 1))
        self.releases = {f"walrus/walrus-node:{one.version}": SimRelease(one.level, one.wire) for one in self.table}
        self.releases["walrus/walrus-node:sick"] = self.releases["walrus/walrus-node:2.0.0"]
        self._finalize, self.brokers.finalize_level = self.brokers.finalize_level, self._rises

    async def apply(self, manifest):
        cluster = self.objects.get(CLUSTER)
        deleting = cluster is not None and "deletionTimestamp" in cluster["metadata"]
        assert not self.paused or (deleting and cluster["spec"].get("deletionPolicy") != "Delete")
        assert "spec" not in manifest or manifest["kind"] != CLUSTER.kind
        if manifest["kind"] == STATEFUL_SET.name:
            self._scaled(manifest)
        if manifest["kind"] == CLAIM.name:
            claim = self.objects.get(Ref(CLAIM.name, "shop", manifest["metadata"]["name"]))
            assert claim is None or not of_others(claim)
            self._grows(manifest)
        return await super().apply(manifest)

    def _grows(self, manifest):
        """A claim follows the spec or the largest one of its pool; by itself that is a step larger, up to the most."""
        wanted = amount_of(size_of(manifest))
        name, _, _ = manifest["metadata"]["name"].removeprefix("data-").rpartition("-")
        (pool,) = [
            one
            for one in json.loads(self.objects[ACCEPTED]["data"]["spec"])["pools"]
            if f"orders-{one['name']}" == name
        ]
        told, pods = pool["storage"]["claim"], [Ref(POD.name, "shop", f"{name}-{ordinal}") for ordinal in range(5)]
        found = (self.objects.get(Ref(CLAIM.name, "shop", f"data-{pod.name}")) for pod in pods)
        claims = [claim for claim in found if claim is not None and not of_others(claim)]
        most = max(amount_of(told["size"]), *(amount_of(size_of(claim)) for claim in claims))
        if "autoGrow" in told:
            rooms = [self.volumes.room(pod) for pod in pods if pod in self.objects]
            is_full = any(100 * (total - free) >= told["autoGrow"]["at"] * total for total, free in rooms)
            step = amount_of(told["autoGrow"]["step"]) if is_full else 0
            most = max(most, min(most + step, amount_of(told["autoGrow"]["max"])))
        assert wanted <= most

    def _scaled(self, manifest):
        assert manifest["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
        name, wanted = manifest["metadata"]["name"], manifest["spec"]["replicas"]
        found = self.objects.get(Ref(STATEFUL_SET.name, "shop", name))
        for ordinal in range(found["spec"]["replicas"] if found is not None else 0, wanted):
            claim = self.objects.get(Ref("PersistentVolumeClaim", "shop", f"data-{name}-{ordinal}"))
            assert claim is None or not of_others(claim)
        if found is None:
            noted = self.objects.get(REMADE, {"data": {}})["data"].get(name.removeprefix("orders-"))
            if noted is not None and "walrus.dev/hibernated" not in manifest["metadata"]["annotations"]:
                kept = json.loads(noted)
                told = kept["metadata"]["annotations"]
                asked = max(int(told["walrus.dev/replicas"]), int(told.get("walrus.dev/hibernated", 0)))
                assert wanted == max(kept["spec"]["replicas"], asked)
            return
        had, told = found["spec"]["replicas"], found["metadata"]["annotations"]
        if "walrus.dev/hibernated" in manifest["metadata"]["annotations"]:
            assert wanted == 0
            assert json.loads(self.objects[ACCEPTED]["data"]["spec"])["hibernate"]
            return
        asked = max(int(told["walrus.dev/replicas"]), int(told.get("walrus.dev/hibernated", 0)))
        if wanted < had:
            assert wanted == had - 1
            assert f"{name}-{wanted}" not in self._joined()
        elif wanted > max(had, asked):
            assert wanted == had + 1
            self._everyone_serves()

    async def delete(self, ref, uid, *, orphan=False):
        assert not self.paused
        assert ref.kind in ("ConfigMap", "Service", "StatefulSet", "PersistentVolumeClaim")
        if ref.kind == "StatefulSet" and ref in self.objects and not orphan:
            assert self.objects[ref]["spec"]["replicas"] == 0
        if orphan:
            assert ref.kind == "StatefulSet"
            assert ref.name.removeprefix("orders-") in self.objects[REMADE]["data"]
        if ref.kind == "PersistentVolumeClaim" and ref in self.objects:
            cluster = self.objects[CLUSTER]
            goes = "deletionTimestamp" in cluster["metadata"] and cluster["spec"]["deletionPolicy"] == "Delete"
            accepted = json.loads(self.objects[ACCEPTED]["data"]["spec"]) if ACCEPTED in self.objects else {}
            left = accepted.get("deletionPolicy") == "Delete" and has_left(self, ref)
            lost = has_left(self, ref) and self.disks[ref.namespace, "claim", ref.name[5:]]["disk"] in self.given_up
            assert goes or left or lost or "volumeName" not in self.objects[ref]["spec"]
            assert self.objects[ref]["metadata"]["labels"]["walrus.dev/cluster"] == "orders"
        await super().delete(ref, uid, orphan=orphan)

    def remove_lost(self, disk):
        """Its node is gone, and everyone else serves: a second one is never given up before the first is replaced."""
        (pod,) = [pod for (_, kind, pod), told in self.disks.items() if kind == "claim" and told["disk"] == disk]
        volume = self.nodes.volume(self.objects[Ref(CLAIM.name, "shop", f"data-{pod}")]["spec"]["volumeName"])
        machines = map(Machine.parse, self.nodes.manifests())
        assert not Volume.parse(volume).reached_from(machines)
        assert not self.paused
        self._everyone_serves(but=pod)
        self.given_up.add(disk)

    async def evict(self, ref, uid):
        assert not self.paused
        pod = self.objects.get(ref)
        if pod is not None and is_ready(pod):
            self._everyone_serves(joined_only=True)
            self._starts_again(ref)
        if pod is not None and "podIP" in pod["status"]:
            assert not {name for name in self._missed() - {ref.name} if self._gone(name)}, ref
        await super().evict(ref, uid)
        self.taken.add(ref.name)

    async def _rises(self, host, level, secrets):
        assert not self.paused
        assert all(self.known[disk] >= level for told in self.members.values() for disk in told)
        await self._finalize(host, level, secrets)

    def _joined(self):
        return {name for told in self.members.values() for name in told.values()}

    def _starts_again(self, ref):
        """The next pod of its name knows what its cluster uses, or the broker never comes back."""
        template = self.objects[Ref(STATEFUL_SET.name, "shop", ref.name.rpartition("-")[0])]["spec"]["template"]
        assert self.release(template).level >= self.used.get(self.identity(ref)["cluster"], 0)

    def _missed(self):
        """Those that the operator took, and that are part of the cluster; while there is none, whoever has a disk."""
        claims = {name: self.objects.get(Ref(CLAIM.name, "shop", f"data-{name}")) for name in self.taken}
        with_disk = {name for name, claim in claims.items() if claim is not None and is_bound(claim)}
        return self.taken & self._joined() if self._joined() else with_disk

    def _gone(self, name):
        """Whether it shall be there and does not run yet, though nothing keeps it from running."""
        pool, _, ordinal = name.rpartition("-")
        found = self.objects.get(Ref(STATEFUL_SET.name, "shop", pool))
        pod = self.objects.get(Ref(POD.name, "shop", name), {"status": {}})
        held = name in self.stuck or self.nodes.hold(Ref(POD.name, "shop", name))
        return (
            found is not None and int(ordinal) < found["spec"]["replicas"] and not held and "podIP" not in pod["status"]
        )

    def _everyone_serves(self, *, joined_only=False, but=""):
        """Growth and a roll build upon brokers that are known to serve."""
        sets = {uid_of(found) for ref, found in self.objects.items() if ref.kind == STATEFUL_SET.name}
        for ref, pod in self.objects.items():
            ours = any(owner["uid"] in sets for owner in pod["metadata"].get("ownerReferences", ()))
            if ref.kind == POD.name and ours and ref.name != but and (not joined_only or ref.name in self._joined()):
                assert is_ready(pod), ref
                assert ref.name not in self.down, ref
                assert self.runs(ref), ref


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.booleans(), st.booleans(), OPERATIONS)
def test_the_invariants_hold_and_it_heals(serves, volumes_move, operations):
    kube = deepcopy(running()) if serves else Watched()
    kube.nodes.volumes_move = volumes_move
    live(kube, operations)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(RESIZING)
def test_the_invariants_hold_while_claims_grow(operations):
    kube = deepcopy(running())
    live(kube, [one for both in operations for one in both])


@cache
def running():
    """A cluster that serves, and whose claims can grow."""
    kube = Watched()
    kube.volumes.default = EXPANDABLE
    put(kube, SMALLEST)
    converge(kube, KEY)
    return kube


def live(kube, operations):
    """All that happens, and then it heals."""
    spec = SMALLEST
    put(kube, spec)
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
            case "order":
                kube.orders = ordered(kube, value)
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
                kube.unready.discard(value)
            case "unready":
                kube.unready.add(value)
            case "evict":
                kube.ask_to_evict(value)
            case "cordon" | "uncordon" | "drain" | "fail" | "give_up" | "forget" | "back":
                getattr(kube.nodes, what)(value)
            case "crowd":
                kube.nodes.limit_pods(value, 1)
            case "size":
                spec = SIZES[value]
                put(kube, spec)
            case "fill":
                kube.volumes.used[value[0]] = value[1] * 2**20
            case "zone":
                kube.nodes.labels[value[0]] = {ZONE: value[1]} if value[1] is not None else {}
            case "offline":
                kube.volumes.offline.add(value)
            case "quota":
                kube.volumes.quota = value
            case "driver":
                kube.volumes.is_away = value
            case "infeasible":
                kube.volumes.infeasible.add(f"data-{value}")
            case "disks":
                kube.nodes.limit_disks(value)
            case "newer":
                made_by_a_newer_operator(kube)
            case "scale":
                if SET in kube.objects:
                    kube.scale("orders-general", value)
            case "refuse":
                kube.refused[value[0]] = value[1]
            case "allow":
                kube.refused.clear()
            case "foreign":
                foreign(kube, value)
            case "orphan":
                if CLUSTER in kube.objects:
                    orphan(kube)
                    put(kube, spec)
            case "delete":
                kube.remove(*value)
                if value[0] == "WalrusCluster":
                    end(kube)
                    put(kube, spec)
        assert len({disk["cluster"] for disk in kube.disks.values()} - {""}) <= 1
    heal(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    assert len({disk["cluster"] for disk in kube.disks.values()} - {""}) == 1  # who never joined may leave a claim
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes


def has_left(kube, ref):
    """Whether the claim bears a disk that was part of the cluster and is not any more."""
    disk = kube.disks.get((ref.namespace, "claim", ref.name.removeprefix("data-")), {"cluster": ""})
    return bool(disk["cluster"]) and disk["disk"] not in kube.members[disk["cluster"]]


def put(kube, spec):
    spec = {"lostAfter": "4s", **spec}
    annotations = kube.orders | ({"walrus.dev/pause": ""} if kube.paused else {})
    kube.put("orders", spec, annotations=annotations | ({"walrus.dev/adopt": ""} if kube.adopts else {}))


def ordered(kube, order):
    """The order with a disk for the ordinal of its broker; one that is not there has none."""
    disks = {
        ordinal: kube.disks.get(("shop", "claim", f"orders-general-{ordinal}"), {"disk": "none"}) for ordinal in (0, 1)
    }
    return order | ({DRAIN: disks[order[DRAIN]]["disk"]} if DRAIN in order else {})


def orphan(kube):
    """The cluster goes and leaves everything, and the next one of its name takes it over."""
    kept = {ref for ref, found in kube.objects.items() if ref.kind == CLAIM.name and is_bound(found)}
    kube.paused, kube.adopts = False, True
    kube.objects[CLUSTER]["metadata"]["annotations"] = {}
    kube.orphan("WalrusCluster", "orders")
    passes(kube, 4)
    assert CLUSTER not in kube.objects
    assert kept <= kube.objects.keys()


def is_bound(claim):
    return "volumeName" in claim["spec"]


def end(kube):
    """The deletion goes through: nothing refuses it, and nobody pauses it."""
    refused, kube.refused = kube.refused, {}
    if CLUSTER in kube.objects:
        kube.paused = False
        kube.objects[CLUSTER]["metadata"]["annotations"] = {}
    goes = CLUSTER in kube.objects and kube.objects[CLUSTER]["spec"].get("deletionPolicy") == "Delete"
    bound = {ref for ref, found in kube.objects.items() if ref.kind == "PersistentVolumeClaim"}
    passes(kube, 4)
    while kube.step():
        pass
    assert CLUSTER not in kube.objects
    assert goes or bound <= {
        *kube.objects,
        *(ref for ref in bound if (ref.namespace, "claim", ref.name[5:]) not in kube.disks),
    }
    kube.refused = refused


def foreign(kube, what):
    """Something of someone else, which would be in the way."""
    if what == "pod":
        if Ref("Pod", "shop", "theirs") not in kube.objects:
            kube.make(POD, "theirs", {"walrus.dev/cluster": "orders"}, spec={"containers": [{"image": ""}]}, status={})
            kube.stuck.add("theirs")
    elif Ref("PersistentVolumeClaim", "shop", what) not in kube.objects:
        spec = {"volumeName": "theirs", "resources": {"requests": {"storage": "1Gi"}}}
        kube.make(CLAIM, what, {"walrus.dev/cluster": "other"}, spec=spec, status={"phase": "Bound"})


def made_by_a_newer_operator(kube):
    """Pods as a release makes them that knows one input more."""
    found = kube.objects.get(SET)
    if found is None:
        return
    told = json.loads(found["metadata"]["annotations"]["walrus.dev/rendered-from"])
    former = PodInputs.parse(json.dumps(told))
    inputs = PodInputs.parse(json.dumps(told | {"future": 1}))
    found["metadata"]["annotations"]["walrus.dev/rendered-from"] = inputs.text()
    for template in (found["spec"]["template"], *kube.pods().values()):
        if template["metadata"].get("annotations", {}).get("walrus.dev/revision") == former.revision():
            template["metadata"]["annotations"]["walrus.dev/revision"] = inputs.revision()


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
    kube.stuck -= {*PODS}
    kube.nodes.heal()
    kube.nodes.labels.clear()
    kube.volumes.heal()
    kube.unready.clear()
    kube.refused.clear()
    kube.crash_at = None
    kube.step()  # pods go that someone scaled away
    for ref in [ref for ref, found in kube.objects.items() if ref.kind == CLAIM.name and of_others(found)]:
        kube.collect(Ref(POD.name, "shop", ref.name.removeprefix("data-")))  # it was scaled onto that claim by hand
        disk = "shop", "claim", ref.name.removeprefix("data-")
        if disk in kube.disks and not kube.disks[disk]["cluster"]:
            del kube.disks[disk]
        del kube.objects[ref]
    kube.paused = False
    kube.orders = {name: order for name, order in kube.orders.items() if name == ROLL}
    put(kube, fitting(kube))
    converge(kube, KEY)
    for ref in [ref for ref in kube.objects if ref.kind == CLAIM.name and has_left(kube, ref)]:
        kube.remove(CLAIM.name, ref.name)  # as the operator says
    converge(kube, KEY)


def of_others(found):
    return found["metadata"]["labels"].get("walrus.dev/cluster") != "orders"


def fitting(kube):
    """A spec of the pools that are there, as they are, or were when their claims were made; of a release that works."""
    pools, image = {"general": {"replicas": 3, "storage": SMALLEST["pools"][0]["storage"]}}, None
    for ref, found in kube.objects.items():
        if ref.kind == CLAIM.name and not of_others(found):
            pool, _, ordinal = ref.name.removeprefix("data-orders-").rpartition("-")
            replicas = max(int(ordinal) + 1, pools.get(pool, {}).get("replicas", 0))
            pools[pool] = {"replicas": replicas, "storage": storage_of(found)}
    for ref, found in kube.objects.items():
        if ref.kind == STATEFUL_SET.name:
            pool = pools.setdefault(ref.name.removeprefix("orders-"), {"replicas": 0})
            container = found["spec"]["template"]["spec"]["containers"][0]
            image = container["image"] if container["image"] not in kube.sick else None
            env = {one["name"]: one.get("value") for one in container["env"]}
            pool["backend"] = env["WALRUS_BACKEND"]
            pool["storage"] = storage_of(found["spec"]["volumeClaimTemplates"][0])
            asked = int(found["metadata"]["annotations"]["walrus.dev/replicas"])
            pool["replicas"] = max(pool["replicas"], found["spec"]["replicas"], asked)
    listed = [{"name": name, **facts} for name, facts in sorted(pools.items())]
    return {"image": image or "walrus/walrus-node:2.0.0", "pools": listed}


def storage_of(claim):
    return {"claim": {"size": size_of(claim)}}


def size_of(claim):
    return claim["spec"]["resources"]["requests"]["storage"]
