"""Whatever Kubernetes, its nodes and other operators do in whatever order: no pass fails, and in the end it heals.

The whole operator runs over `Watched`, which looks at every write as in test_invariants.py, in a time that is counted.
Drawn are users, refusals by verb and kind, slow calls and lost answers, webhooks, a definition that knows less,
nodes that are drained, off or gone, lists of a moment ago, and operators that die or stand by.
"""

import asyncio

from examples import SMALLEST, changed, with_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from operating import World
from test_invariants import NODES, SPECS, Watched
from virtual import run, until
from walrus_operator.kube.api import Denied, Refused, Unreachable

HEALED_S = 2400  # an object that was contested is tried each 16 minutes in the end
WISHES = [*SPECS[:7], changed(SMALLEST, version="3.0.0"), with_pool(SMALLEST, replicas=4)]
FAULTS = [
    (error, verbs, kinds)
    for error in (Denied, Refused, Unreachable)
    for verbs, kinds in (
        (("patch",), ("StatefulSet", "PodDisruptionBudget")),
        (("patch", "create"), ("ConfigMap", "Service", "Event")),
        (("create",), ("Pod/eviction",)),
        (("patch",), ("WalrusCluster/status",)),
        (("list",), None),
        (None, None),
    )
    if error is not Refused or verbs not in (("list",), None)
]

OPERATIONS = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("spec"), st.sampled_from(WISHES)),
            st.tuples(st.just("fault"), st.sampled_from(FAULTS)),
            st.tuples(st.just("slow"), st.sampled_from([0.5, 2.5])),
            st.tuples(st.just("unheard"), st.integers(1, 3)),
            st.tuples(st.sampled_from(["webhook", "second", "die", "well", "stale", "fresh"]), st.none()),
            st.tuples(st.just("pruned"), st.sampled_from(["members", "plan", "clusterId"])),
            st.tuples(st.sampled_from(["drain", "fail", "give_up", "forget", "back"]), st.sampled_from(NODES)),
        ),
        st.sampled_from([1, 5, 20]),  # seconds until the next
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(OPERATIONS)
def test_it_heals_whatever_its_surroundings_do(operations):
    async def story():
        world = World(Watched())
        async with world.moving():
            world.kube.put("orders", SMALLEST)
            operators = [world.start("one")]
            for (what, value), seconds in operations:
                operators += happens(world, what, value)
                await asyncio.sleep(seconds)
            heal(world)
            world.kube.put("orders", fitting(world.kube))
            await until(world.is_ready, HEALED_S, lambda: world.status())
            assert not [one for one in operators if mistakes(one)]
            assert len({disk["cluster"] for disk in world.kube.disks.values()}) == 1

    run(story())


def happens(world, what, value):
    """Something of it. Returns the operators that it starts."""
    server, kube = world.server, world.kube
    match what:
        case "spec":
            kube.put("orders", value)
        case "fault":
            error, verbs, kinds = value
            server.fail(error, verbs, kinds=kinds)
        case "slow":
            server.seconds = value
        case "unheard":
            server.unheard = value
        case "webhook":
            server.webhook = _appends
        case "pruned":
            server.pruned = (*server.pruned, value)
        case "second" if "two" not in world.operators:
            return [world.start("two")]
        case "die":
            return [world.replace(name) for name in list(world.operators)]
        case "stale":
            server.stale = True
        case "fresh":
            server.stale = False
        case "well":
            heal(world)
        case "drain" | "fail" | "give_up" | "forget":
            getattr(kube.nodes, what)(value)
        case "back":
            kube.nodes.back(value)
            kube.nodes.uncordon(value)
    return []


def _appends(found):
    found["metadata"].setdefault("labels", {})["appended"] = "1"


def heal(world):
    server, kube = world.server, world.kube
    server.faults.clear()
    server.seconds, server.unheard, server.pruned = 0.0, 0, ()
    server.webhook = lambda _: None
    server.stale = False
    kube.nodes.heal()


def fitting(kube):
    """A spec with as many brokers as there are."""
    found = [found for ref, found in kube.objects.items() if ref.kind == "StatefulSet"]
    pools = {one["metadata"]["labels"]["walrus.dev/pool"]: one["spec"]["replicas"] for one in found}
    made = with_pool(SMALLEST, replicas=max(pools.get("general", 3), 3))
    return changed(made, version="4.0.0")


def mistakes(operator):
    """Passes that ended in what is no answer of Kubernetes: an invariant that was broken, above all."""
    return operator.metrics.passes.labels("mistake")._value.get()
