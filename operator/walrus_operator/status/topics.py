"""The status of a WalrusTopic, from a look, a plan and what was done of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from walrus_operator.api.topic_status import DriftRow, LeaderRow, SettingRow, TopicStatus
from walrus_operator.observe.topics import Compared, FoundTopic, Topic
from walrus_operator.plan.topics import (
    REFUSING,
    AddPartitions,
    Drift,
    MakeTopic,
    RemoveTopic,
    SetTopicConfig,
    TopicDone,
    TopicGate,
    TopicPlan,
    TopicWait,
    drifts,
)
from walrus_operator.status.conditions import Answer, conditions
from walrus_operator.status.events import Event, Reason

FIGURES_S = 300.0
"""How often figures that move with traffic are brought up to date in the status of a topic."""
_FIGURES = frozenset({"leaders", "size"})
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_UNSURE = frozenset({TopicGate.NO_CLUSTER, TopicGate.BROKERS_UNAVAILABLE})


class TopicType(StrEnum):
    """The questions."""

    READY = "Ready"
    """Is the topic there, as the spec says?"""
    ACCEPTED = "Accepted"
    """Can the topic be as the spec says?"""
    SYNCED = "Synced"
    """Is what is there as the spec says?"""


def derive_topic(plan: TopicPlan, done: TopicDone | None, now: datetime) -> dict[str, Any] | None:
    """The status to be told, of a plan that was carried out so far. None: what is told stays, for nothing is known.

    A topic of which nobody can be asked just now is most likely as it was: that its cluster does not answer is told by
    the cluster, not by each of its topics.
    """
    topic, seen, waits = plan.topic, plan.seen, [*plan.waits]
    if done is not None and done.wait is not None:
        waits.append(done.wait)
    if {wait.gate for wait in waits} == {TopicGate.BROKERS_UNAVAILABLE} and not topic.deleting and _is_told(topic):
        return None
    facts = _Facts(topic, waits[0] if waits else None, seen, _drifts(topic, seen))
    status = TopicStatus(
        observed_generation=topic.generation,
        phase=_ready(facts).reason,
        name=str(topic.wanted) if topic.wanted is not None else None,
        drift=[DriftRow(field=one.field, wanted=one.wanted, found=one.found) for one in facts.drifted] or None,
        conditions=conditions([_ready(facts), _accepted(facts), _synced(facts)], topic.status, topic.generation, now),
    )
    # What brokers did not tell this time is not forgotten: the identity above all, by which the topic is deleted.
    kept = {} if seen is not None else {name: topic.status[name] for name in _KEPT if name in topic.status}
    told = status.model_copy(update=_found(seen.found) if seen is not None and seen.found is not None else {})
    return kept | told.model_dump(by_alias=True, exclude_none=True)


def _found(found: FoundTopic) -> dict[str, Any]:
    leaders = sorted(found.leaders.items())
    return {
        "topic_id": found.id,
        "partitions": found.partitions,
        "replication_factor": found.factor,
        "size": rounded(found.sealed_bytes),
        "settings": [SettingRow(name=name, value=value, source=source) for name, value, source in found.settings],
        "leaders": [LeaderRow(broker=broker, partitions=count) for broker, count in leaders],
    }


def _drifts(topic: Topic, seen: Compared | None) -> list[Drift]:
    """What is known not to be as it is wanted; where the wanted settings cannot be, nobody compares."""
    return drifts(topic.wanted, seen) if seen is not None and topic.wanted is not None and not seen.refused else []


_KEPT = ("topicId", "partitions", "replicationFactor", "size", "settings", "leaders")


def lasting(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a status says besides figures that move with traffic, and besides since when it says so."""
    made = {name: value for name, value in status.items() if name not in _FIGURES}
    told = made.get("conditions", ())
    made["conditions"] = [{key: one[key] for key in one if key != "lastTransitionTime"} for one in told]
    return made


def topic_events(topic: Topic, status: Mapping[str, Any], done: TopicDone | None) -> list[Event]:
    """What happened to a topic that people want to know of."""
    made = []
    for action in done.actions if done is not None else ():
        match action:
            case MakeTopic():
                made.append(Event(Reason.CREATED, str(action)))
            case SetTopicConfig() | AddPartitions():
                made.append(Event(Reason.UPDATED, str(action)))
            case RemoveTopic():
                made.append(Event(Reason.REMOVED, str(action)))
    refused, before = _condition(status, TopicType.ACCEPTED), _condition(topic.status, TopicType.ACCEPTED)
    if refused.get("status") == "False" and refused.get("message") != before.get("message"):
        made.append(Event(Reason.SPEC_REFUSED, refused["message"]))
    return made


def rounded(size: int) -> str:
    """Bytes as people read them, with two digits: it says something new only when they are another size."""
    value, unit = float(size), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    shown = f"{value:.1f}" if 0 < value < 10 and unit else f"{float(f'{value:.2g}'):.0f}"
    return shown.removesuffix(".0") + _UNITS[unit]


def _is_told(topic: Topic) -> bool:
    """Whether the status tells of this very spec, from brokers that answered."""
    ready = _condition(topic.status, TopicType.READY)
    return ready.get("observedGeneration") == topic.generation and ready.get("status") in ("True", "False")


def _condition(status: Mapping[str, Any], type_: TopicType) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions", ()) if one["type"] == type_), {})


@dataclass(frozen=True)
class _Facts:
    """What the answers are taken from."""

    topic: Topic
    wait: TopicWait | None
    """The first gate that was met."""
    seen: Compared | None
    drifted: Sequence[Drift]


def _ready(facts: _Facts) -> Answer:
    if facts.topic.deleting:
        detail = facts.wait.detail if facts.wait is not None else "it is being deleted"
        return Answer(TopicType.READY, status=False, reason="Deleting", message=detail)
    if facts.wait is not None:
        unknown = facts.wait.gate in _UNSURE
        return Answer(TopicType.READY, None if unknown else False, str(facts.wait.gate), facts.wait.detail)
    if facts.drifted:
        return Answer(TopicType.READY, status=False, reason="Pending", message="it is about to be made so")
    return Answer(TopicType.READY, status=True, reason="Ready", message="the topic is there, as the spec says")


def _accepted(facts: _Facts) -> Answer:
    wait = facts.wait
    if wait is not None and (wait.gate in REFUSING or wait.gate in _UNSURE):
        status = False if wait.gate in REFUSING else None
        return Answer(TopicType.ACCEPTED, status, str(wait.gate), wait.detail)
    return Answer(TopicType.ACCEPTED, status=True, reason="Accepted", message="the topic can be as the spec says")


def _synced(facts: _Facts) -> Answer:
    if facts.drifted:
        message = f"not as the spec says: {', '.join(drift.field for drift in facts.drifted)}"
        return Answer(TopicType.SYNCED, status=False, reason="Drifted", message=message)
    if facts.seen is not None and not facts.seen.refused:
        return Answer(TopicType.SYNCED, status=True, reason="Synced", message="what is there is as the spec says")
    reason, message = (str(facts.wait.gate), facts.wait.detail) if facts.wait is not None else ("Pending", "")
    return Answer(TopicType.SYNCED, status=None, reason=reason, message=message)
