"""StatefulSets that are made anew over their pods, as noted before they are deleted.

Kubernetes changes no template of claims. What only the StatefulSet knew is in the note until the next one is there: how
many brokers it was asked for, and what their pods were made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from walrus_operator.objects import STATEFUL_SET, Manifest

_METADATA = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")


def noted(found: Manifest) -> str:
    """The StatefulSet as it is kept in the ConfigMap."""
    metadata = {name: found["metadata"][name] for name in _METADATA if name in found["metadata"]}
    return json.dumps({"metadata": metadata, "spec": found["spec"]}, sort_keys=True)


def sets_of(data: Mapping[str, Any]) -> dict[str, Manifest]:
    """StatefulSets by pool, of a ConfigMap's data. Kubernetes has not taken note of any of them."""
    parsed = {pool: _parsed(str(text)) for pool, text in sorted(data.items())}
    return {pool: found for pool, found in parsed.items() if found is not None}


def _parsed(text: str) -> Manifest | None:
    """The StatefulSet; None where the note cannot be read, as if there were none."""
    try:
        told = json.loads(text)
        metadata, spec = dict(told["metadata"]), dict(told["spec"])
        dict(metadata["labels"]), int(spec["replicas"]), dict(spec["template"]["metadata"])
    except (ValueError, KeyError, TypeError):
        return None
    kind = {"apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.name}
    return {**kind, "metadata": {**metadata, "generation": 1}, "spec": spec}
