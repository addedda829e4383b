"""Where a pod on a folder of its node comes up: pods are held by a scheduling gate until that is said."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from walrus_operator.desired.names import PLACE
from walrus_operator.objects import Manifest

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def placed(pod: Manifest, node: str, taken: Iterable[str]) -> Manifest:
    """The pod, held no more: on this node; or, where it has none yet, on none of those whose folders are taken.

    Of a pod that is held, Kubernetes takes further requirements in each term that it has, and nothing else.
    """
    made = deepcopy(pod)
    spec = made["spec"]
    spec["schedulingGates"] = [gate for gate in spec["schedulingGates"] if gate["name"] != PLACE]
    fields = [_field("In", node)] if node else [_field("NotIn", one) for one in taken]
    if fields:
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        for term in affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]:
            term["matchFields"] = [*term.get("matchFields", ()), *fields]
    return made


def is_held(pod: Manifest) -> bool:
    """Whether nobody said yet where the pod shall be."""
    return any(gate["name"] == PLACE for gate in pod.get("spec", {}).get("schedulingGates") or ())


def _field(operator: str, node: str) -> Manifest:
    return {"key": "metadata.name", "operator": operator, "values": [node]}
