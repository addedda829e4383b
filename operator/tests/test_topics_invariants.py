"""Whatever people, others and faults do with topics: no topic is deleted that nobody asked to, and it heals."""

from driving import Operator, settle_topics, topic_status
from examples import SMALLEST
from hypothesis import given, settings
from hypothesis import strategies as st
from simapi import Crash
from simkube import SimKube
from test_topics import started
from walrus_operator.kube.api import Denied, Refused, Unreachable
from walrus_operator.objects import Ref

NAMES = ("billing", "second", "third")
SPECS = [
    {"cluster": "orders"},
    {"cluster": "orders", "partitions": 4, "retention": {"age": "1h"}},
    {"cluster": "orders", "deletionPolicy": "Delete"},
    {"cluster": "orders", "name": "billing", "deletionPolicy": "Delete", "configs": {"segment.ms": 5}},
    {"cluster": "orders", "name": "billing", "managementPolicy": "ObserveOnly"},
    {"cluster": "orders", "configs": {"nonsense": 1}},
    {"cluster": "orders", "unknown": True},
]
ERRORS = [Refused("no"), Denied("no"), Unreachable("no answer")]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(st.sampled_from(NAMES), st.sampled_from(range(len(SPECS))))),
        st.tuples(st.sampled_from(["remove", "change", "drop", "make"]), st.sampled_from(NAMES)),
        st.tuples(st.just("passes"), st.integers(1, 3)),
        st.tuples(st.just("crash"), st.tuples(st.integers(1, 6), st.booleans())),
        st.tuples(st.just("refuse"), st.tuples(st.sampled_from(NAMES), st.sampled_from(ERRORS))),
        st.tuples(st.sampled_from(["allow", "pause", "go on", "silence", "wake", "new cluster"]), st.none()),
    ),
    max_size=20,
)


class Watched:
    """Looks at every deletion and change of a topic."""

    def __init__(self, kube: SimKube):
        self.kube = kube
        self.paused = False
        self.remove, kube.brokers.remove_topic = kube.brokers.remove_topic, self.removed
        for name in ("make_topic", "set_topic_config", "set_topic_partitions"):
            setattr(kube.brokers, name, self._changed(getattr(kube.brokers, name)))

    async def removed(self, host, topic, secrets):
        asked = [found for ref, found in self.kube.objects.items() if ref.kind == "WalrusTopic"]
        told = [one for one in asked if one.get("status", {}).get("topicId") == topic]
        assert [one for one in told if "deletionTimestamp" in one["metadata"] and one["spec"].get("deletionPolicy")]
        assert not self.paused
        await self.remove(host, topic, secrets)

    def _changed(self, call):
        async def change(*arguments):
            assert not self.paused
            return await call(*arguments)

        return change


@settings(derandomize=True, deadline=None, max_examples=100)
@given(OPERATIONS)
def test_the_invariants_of_topics_hold_and_it_heals(operations):
    kube = started()
    watched = Watched(kube)
    for what, value in operations:
        match what:
            case "put":
                put(kube, value[0], SPECS[value[1]])
            case "remove":
                kube.remove("WalrusTopic", value)
            case "change":
                if kube.topics.found(value):
                    kube.topics.change(value, **{"retention.ms": "9"})
            case "drop":
                if kube.topics.found(value):
                    kube.topics.drop(value)
            case "make":
                if not kube.topics.found(value):
                    kube.topics.make(value, partitions=2)
            case "passes":
                passes(kube, value)
            case "crash":
                kube.crash_at, kube.crash_before = kube.writes + value[0], value[1]
            case "refuse":
                kube.refused[Ref("WalrusTopic", "shop", value[0])] = value[1]
            case "allow":
                kube.refused.clear()
            case "pause" | "go on":
                watched.paused = what == "pause"
                kube.put("orders", SMALLEST, annotations={"walrus.dev/pause": "why"} if watched.paused else {})
            case "silence":
                kube.down |= {f"orders-general-{number}" for number in range(3)}
            case "wake":
                kube.down.clear()
            case "new cluster":
                kube.topics.topics.clear()
    kube.refused.clear()
    kube.down.clear()
    kube.crash_at = None
    watched.paused = False
    kube.put("orders", SMALLEST)
    settle_topics(kube)
    deleting = [found for ref, found in kube.objects.items() if "deletionTimestamp" in found["metadata"]]
    assert [found for found in deleting if found["kind"] == "WalrusTopic"] == []
    heal(kube)


def put(kube, name, spec):
    """What the definition lets through: a name is fixed, and one that is being deleted stays as it is."""
    found = kube.objects.get(Ref("WalrusTopic", "shop", name))
    if found is None or (
        found["spec"].get("name") == spec.get("name") and "deletionTimestamp" not in found["metadata"]
    ):
        kube.put_topic(name, spec)


def passes(kube, number):
    operator = Operator(kube)
    for _ in range(number):
        try:
            operator.topics_once()
        except Crash:
            operator = Operator(kube)


def heal(kube):
    """Each topic that can be is as its spec says, and nothing is written any more."""
    for name in NAMES:
        kube.remove("WalrusTopic", name)
    settle_topics(kube)
    for name in NAMES:
        found = kube.topics.found(name)
        partitions = found["partitions"] if found else 4
        kube.put_topic(name, {"cluster": "orders", "partitions": partitions, "retention": {"age": "1h"}})
    settle_topics(kube)
    for name in NAMES:
        assert topic_status(kube, name)["phase"] == "Ready", topic_status(kube, name)
        assert kube.topics.found(name)["config"] == {"retention.ms": "3600000"}
    writes = kube.writes
    Operator(kube).topics_once()
    assert kube.writes == writes
