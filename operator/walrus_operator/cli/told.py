"""What commands print of resources, from what the operator wrote into their status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walrus_operator.api.updates import Finalize
from walrus_operator.desired.names import FINALIZE, PAUSE
from walrus_operator.objects import Manifest
from walrus_operator.plan.actions import REFUSED, Gate
from walrus_operator.plan.patience import MOVING

Row = tuple[object, ...]

CLUSTERS = ("name", "brokers", "ready", "leader", "version", "phase", "next", "blocked by")
BROKERS = ("pod", "state", "node", "zone", "role", "leads", "disk %", "backend", "version", "restarts", "detail")
TOPICS = ("name", "cluster", "topic", "partitions", "copies", "size", "phase", "why")
CONDITIONS = ("condition", "status", "reason", "message")

_EXPECTED = {"Progressing": ("False",), "SurvivesZoneLoss": ("True", "Unknown")}
"""What a condition says where nothing is to be told; the others are `True` then."""
_REFUSALS = frozenset(map(str, REFUSED))


def is_as_wished(condition: Mapping[str, str]) -> bool:
    """Whether a condition says what nobody needs to be told of; many clusters know no zones."""
    return condition["status"] in _EXPECTED.get(condition["type"], ("True",))


def cluster_row(found: Manifest) -> Row:
    """One cluster."""
    status, plan = _status(found), _status(found).get("plan", {})
    told = (status.get(name) for name in ("replicas", "readyReplicas", "leader", "version", "phase"))
    return (found["metadata"]["name"], *told, plan.get("next"), plan.get("blockedBy"))


def broker_rows(found: Manifest) -> list[Row]:
    """The brokers of a cluster."""
    names = ("state", "node", "zone", "role", "segmentsLed", "diskPercent", "backend", "version", "restarts", "detail")
    return [(row["pod"], *(row.get(name) for name in names)) for row in _status(found).get("brokers", ())]


def condition_rows(found: Manifest) -> list[Row]:
    """The conditions of a resource."""
    names = ("type", "status", "reason", "message")
    return [tuple(one.get(name) for name in names) for one in _status(found).get("conditions", ())]


def topic_row(found: Manifest) -> Row:
    """One topic."""
    status = _status(found)
    ready: Mapping[str, Any] = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {})
    why = ready.get("message") if ready.get("status") != "True" else None
    told = (status.get(name) for name in ("name", "partitions", "replicationFactor", "size", "phase"))
    return (found["metadata"]["name"], found["spec"].get("cluster"), *told, why)


def explained(found: Manifest) -> list[str]:
    """What comes next for a cluster, what holds it up, and who can lift that: sentences."""
    metadata, status = found["metadata"], _status(found)
    lines = [f"{metadata['name']}: {status.get('phase', 'nobody has looked at it')}."]
    if status.get("observedGeneration") != metadata.get("generation"):
        lines.append("The operator has not looked at the present spec yet: what follows is about the one before.")
    reason = metadata.get("annotations", {}).get(PAUSE)
    if reason is not None:
        lines.append(
            f"It is paused{f' ({reason})' if reason else ''}: kubectl annotate wc {metadata['name']} {PAUSE}- goes on."
        )
    lines += _planned(status.get("plan", {}))
    lines += _way_back(found)
    for one in status.get("conditions", ()):
        if not is_as_wished(one):
            lines.append(f"{one['type']} is {one['status']} ({one['reason']}): {one['message']}")
            if one["reason"] in _REFUSALS:
                lines.append(f"Who can lift it: {lifted_by(one['reason'])}")
    for row in status.get("brokers", ()):
        if row["state"] != "Serving":
            why = f": {row['detail']}" if row.get("detail") else ""
            lines.append(f"Broker {row['pod']} is {row['state']}{why}")
        if row.get("diskFullAt"):
            lines.append(
                f"The disk of {row['pod']} is full at {row['diskFullAt']}, if it goes on as in the last hours."
            )
    return lines


def _way_back(found: Manifest) -> list[str]:
    """Whether the brokers may go back to the release before, and how that ends, where a person says when."""
    level, policy = _status(found).get("level") or {}, found.get("spec", {}).get("updatePolicy") or {}
    used, known = level.get("used", 0), level.get("knownByAll", 0)
    if known <= used or policy.get("finalize") != Finalize.MANUAL:
        return []
    order = f"kubectl annotate wc {found['metadata']['name']} {FINALIZE}={known}"
    return [f"The cluster uses level {used} and all brokers know {known}: version can go back until: {order}"]


def _planned(plan: Mapping[str, Any]) -> list[str]:
    lines = []
    if plan.get("next"):
        lines.append(f"Next: {plan['next']}.")
    if plan.get("blockedBy"):
        lines.append(f"Held up by {plan['blockedBy']}: {plan.get('detail', '')}")
        lines.append(f"Who can lift it: {lifted_by(plan['blockedBy'])}")
    return lines or ["Nothing is to be done, and nothing is waited for."]


def lifted_by(gate: str) -> str:
    """Who can open a gate."""
    if gate not in set(Gate):
        return "see the guide of the operator's release; this command does not know the gate."
    if gate in REFUSED:
        return "whoever writes the spec; as long as it is refused the last accepted one is in force."
    if gate in MOVING:
        return "it opens by itself when all goes well; otherwise whoever runs the cluster, as the detail says."
    return "whoever runs the cluster, or Kubernetes, as the detail says."


def ended(names: Sequence[str], what: str) -> str:
    """What is said where there is none of the wanted name."""
    there = f"there are {', '.join(names)}" if names else "there is none"
    return f"no {what} of that name in this namespace: {there}"


def _status(found: Manifest) -> Mapping[str, Any]:
    status: Mapping[str, Any] = found.get("status") or {}
    return status
