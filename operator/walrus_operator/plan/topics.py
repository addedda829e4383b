"""What comes next for the topics of a cluster: each by itself, and by who asked for its name first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from walrus_operator.api.cluster import DeletionPolicy
from walrus_operator.api.topic import ManagementPolicy, TopicSpec
from walrus_operator.desired.topics import Wanted
from walrus_operator.objects import CLUSTER, TOPIC
from walrus_operator.observe.topics import Compared, Difference, FoundTopic, Topic, TopicsSnapshot


@dataclass(frozen=True)
class HoldTopic:
    """Let the deletion of the WalrusTopic wait for the operator, or not any more."""

    held: bool

    def __str__(self) -> str:
        return "Hold the deletion until the topic is gone" if self.held else "Hold the deletion no longer"


@dataclass(frozen=True)
class MakeTopic:
    """Make the topic."""

    wanted: Wanted

    def __str__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in sorted(self.wanted.config.items()))
        return f"Create topic {self.wanted} with {self.wanted.partitions} partitions{settings}"


@dataclass(frozen=True)
class SetTopicConfig:
    """Change the settings that the topic has itself."""

    topic: str
    entries: Mapping[str, str]
    unset: tuple[str, ...]
    expect_version: int

    def __str__(self) -> str:
        steps = [f"{name}={value}" for name, value in sorted(self.entries.items())]
        return "Set " + ", ".join([*steps, *(f"{name} back to its default" for name in self.unset)])


@dataclass(frozen=True)
class AddPartitions:
    """Give the topic more partitions."""

    topic: str
    had: int
    partitions: int

    def __str__(self) -> str:
        return f"Add partitions: {self.partitions} instead of {self.had}"


@dataclass(frozen=True)
class RemoveTopic:
    """Delete the topic with its records: the one of this identity, and no other of its name."""

    topic: str
    name: str

    def __str__(self) -> str:
        return f"Delete topic {self.name} ({self.topic})"


TopicAction = HoldTopic | MakeTopic | SetTopicConfig | AddPartitions | RemoveTopic


class TopicGate(StrEnum):
    """What a topic waits for."""

    INVALID = "Invalid"
    NAME_TAKEN = "NameTaken"
    SETTINGS_REFUSED = "SettingsRefused"
    FEWER_PARTITIONS = "FewerPartitions"
    REFUSED = "Refused"
    MISSING = "Missing"
    DRIFTED = "Drifted"
    NO_CLUSTER = "NoCluster"
    BROKERS_UNAVAILABLE = "BrokersUnavailable"
    PAUSED = "Paused"
    CHANGED_MEANWHILE = "ChangedMeanwhile"
    NOT_WRITTEN = "NotWritten"


REFUSING = frozenset(
    {
        TopicGate.INVALID,
        TopicGate.NAME_TAKEN,
        TopicGate.SETTINGS_REFUSED,
        TopicGate.FEWER_PARTITIONS,
        TopicGate.REFUSED,
    }
)
"""Gates at which what is written cannot be done as it is."""


@dataclass(frozen=True)
class TopicWait:
    """A gate that is closed, and who can open it."""

    gate: TopicGate
    detail: str


@dataclass(frozen=True)
class TopicPlan:
    """What comes next for one topic, and what holds it up."""

    topic: Topic
    actions: tuple[TopicAction, ...] = ()
    """In this order; one that fails holds up those behind it."""
    waits: tuple[TopicWait, ...] = ()
    seen: Compared | None = None
    """What brokers told; None where they did not, or nobody asked."""

    @property
    def is_idle(self) -> bool:
        """Nothing to do and nothing to wait for."""
        return not self.actions and not self.waits


@dataclass(frozen=True)
class TopicDone:
    """What of a topic's plan was done, and what stopped the rest."""

    actions: tuple[TopicAction, ...] = ()
    wait: TopicWait | None = None


def plan_topics(look: TopicsSnapshot) -> list[TopicPlan]:
    """What comes next for each topic, in their order."""
    shared = closed(look)
    asked: dict[tuple[str, str], list[Topic]] = {}
    for topic in look.topics:
        if topic.wanted is not None:
            asked.setdefault(topic.wanted.path, []).append(topic)
    return [_plan(topic, asked[topic.wanted.path] if topic.wanted else [topic], look, shared) for topic in look.topics]


def closed(look: TopicsSnapshot) -> TopicWait | None:
    """What holds up all topics of the cluster; None: nothing."""
    cluster = look.cluster
    if cluster is None or cluster.cluster.deleting:
        gone = "is not there" if cluster is None else "is being deleted"
        detail = f"{CLUSTER.name} {look.key.name} {gone} in this namespace: make it, or name another one"
        return TopicWait(TopicGate.NO_CLUSTER, detail)
    if len(cluster.cluster_ids()) > 1:
        detail = f"brokers belong to different clusters: see {CLUSTER.name} {look.key.name}"
        return TopicWait(TopicGate.BROKERS_UNAVAILABLE, detail)
    if look.trouble:
        return TopicWait(TopicGate.BROKERS_UNAVAILABLE, f"{look.trouble}: see {CLUSTER.name} {look.key.name}")
    return None


def _plan(topic: Topic, rivals: Sequence[Topic], look: TopicsSnapshot, shared: TopicWait | None) -> TopicPlan:
    """*rivals* are all that ask for the same topic, this one among them, the oldest first."""
    if topic.deleting:
        return _paused(_plan_deletion(topic, rivals, look, shared), look)
    wanted, spec = topic.wanted, topic.spec
    if spec is None or wanted is None:
        return TopicPlan(topic, waits=(TopicWait(TopicGate.INVALID, topic.problem),))
    oldest, seen = rivals[0], look.seen.get(topic.uid)
    if shared is not None and shared.gate is TopicGate.NO_CLUSTER:
        return TopicPlan(topic, waits=(shared,))
    hold = _hold(topic, spec, has_the_name=oldest is topic)
    if oldest is not topic:
        detail = f"{TOPIC.name} {oldest.name} is older and has topic {wanted}: give one of them another name"
        return _paused(TopicPlan(topic, hold, (TopicWait(TopicGate.NAME_TAKEN, detail),)), look)
    if shared is not None or seen is None:
        wait = shared or TopicWait(TopicGate.BROKERS_UNAVAILABLE, "the brokers do not tell of it")
        return _paused(TopicPlan(topic, hold, (wait,)), look)
    actions, waits = _compared(wanted, spec, seen)
    return _paused(TopicPlan(topic, (*hold, *actions), waits, seen), look)


def _compared(wanted: Wanted, spec: TopicSpec, seen: Compared) -> tuple[tuple[TopicAction, ...], tuple[TopicWait, ...]]:
    """What makes the topic as it is wanted, where the policy lets it."""
    if seen.refused:
        return (), (TopicWait(TopicGate.SETTINGS_REFUSED, seen.refused),)
    observes = spec.management_policy is ManagementPolicy.OBSERVE_ONLY
    if seen.found is None:
        missing = f"there is no topic {wanted}, and managementPolicy: ObserveOnly makes none"
        return ((), (TopicWait(TopicGate.MISSING, missing),)) if observes else ((MakeTopic(wanted),), ())
    found, waits = seen.found, list[TopicWait]()
    if observes:
        differing = ", ".join(drift.field for drift in drifts(wanted, seen))
        told = f"{differing} differ, see status.drift: managementPolicy: ObserveOnly changes nothing"
        return (), (TopicWait(TopicGate.DRIFTED, told),) if differing else ()
    if found.partitions > wanted.partitions:
        detail = (
            f"topic {wanted} has {found.partitions} partitions and cannot have {wanted.partitions}: none is ever taken"
            f" away; write partitions: {found.partitions}"
        )
        waits.append(TopicWait(TopicGate.FEWER_PARTITIONS, detail))
    return tuple(_changes(wanted, found)), tuple(waits)


def _changes(wanted: Wanted, found: FoundTopic) -> Iterable[TopicAction]:
    if found.differences:
        yield SetTopicConfig(
            found.id,
            {one.name: one.wanted for one in found.differences if one.wanted is not None},
            tuple(one.name for one in found.differences if one.wanted is None),
            found.version,
        )
    if found.partitions < wanted.partitions:
        yield AddPartitions(found.id, found.partitions, wanted.partitions)


def _hold(topic: Topic, spec: TopicSpec, *, has_the_name: bool) -> tuple[TopicAction, ...]:
    """Whether the deletion waits for the operator: only while it would take a topic along."""
    wanted = has_the_name and spec.deletion_policy is DeletionPolicy.DELETE
    return () if wanted == topic.held else (HoldTopic(wanted),)


def _plan_deletion(topic: Topic, rivals: Sequence[Topic], look: TopicsSnapshot, shared: TopicWait | None) -> TopicPlan:
    """The topic goes where the spec says `Delete`, and it is known to be this one; in doubt it stays."""
    if not topic.held:
        return TopicPlan(topic)
    release = HoldTopic(held=False)
    wanted, known = topic.wanted, topic.status.get("topicId")
    goes = topic.spec is not None and topic.spec.deletion_policy is DeletionPolicy.DELETE
    taken_over = any(not other.deleting for other in rivals)
    is_gone = shared is not None and shared.gate is TopicGate.NO_CLUSTER
    if wanted is None or not goes or not known or taken_over or is_gone:
        return TopicPlan(topic, (release,))
    seen = look.seen.get(topic.uid)
    if shared is not None or seen is None:
        detail = f"topic {wanted} is to go first, and nobody can delete it now; with deletionPolicy: Retain it stays"
        return TopicPlan(topic, waits=(TopicWait(TopicGate.BROKERS_UNAVAILABLE, detail),))
    if seen.found is None or seen.found.id != known:
        return TopicPlan(topic, (release,), seen=seen)
    return TopicPlan(topic, (RemoveTopic(known, str(wanted)), release), seen=seen)


def _paused(plan: TopicPlan, look: TopicsSnapshot) -> TopicPlan:
    """The same plan, of which nothing is done while the cluster is paused."""
    if not plan.actions or not is_paused(look):
        return plan
    told = f"{CLUSTER.name} {look.key.name} is paused; to do then: {'; '.join(map(str, plan.actions))}"
    return TopicPlan(plan.topic, (), (*plan.waits, TopicWait(TopicGate.PAUSED, told)), plan.seen)


def is_paused(look: TopicsSnapshot) -> bool:
    """Whether the cluster's operator shall only look."""
    return look.cluster is not None and look.cluster.cluster.pause is not None


@dataclass(frozen=True)
class Drift:
    """Something that is not as it is wanted."""

    field: str
    wanted: str | None
    found: str | None


def drifts(wanted: Wanted, seen: Compared) -> list[Drift]:
    """What is not as it is wanted."""
    found = seen.found
    if found is None:
        return [Drift("topic", str(wanted), None)]
    made = list(map(_drift, found.differences))
    if found.partitions != wanted.partitions:
        made.insert(0, Drift("partitions", str(wanted.partitions), str(found.partitions)))
    return made


def _drift(difference: Difference) -> Drift:
    return Drift(difference.name, difference.wanted, difference.found)
