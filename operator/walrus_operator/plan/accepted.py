"""The last spec that was accepted. While another one is refused, the cluster stays as this one made it. Pure."""

from __future__ import annotations

import json

from walrus_operator.api.cluster import ClusterSpec, parse_spec
from walrus_operator.desired.names import ACCEPTED_SPEC
from walrus_operator.objects import CONFIG_MAP, Ref
from walrus_operator.observe.snapshot import Snapshot


def kept_in(snapshot: Snapshot) -> Ref:
    """The ConfigMap that keeps it."""
    return Ref(CONFIG_MAP.name, snapshot.cluster.key.namespace, snapshot.cluster.names.accepted)


def present_spec(snapshot: Snapshot) -> str:
    """The spec that is there now, as it is kept."""
    return json.dumps(snapshot.cluster.spec, sort_keys=True, separators=(",", ":"))


def last_accepted(snapshot: Snapshot) -> ClusterSpec | None:
    """The last spec that was accepted; None where none was, or another release kept one that is not known here."""
    found = snapshot.objects.get(kept_in(snapshot))
    if found is None or not snapshot.cluster.owns(found):
        return None
    try:
        return parse_spec(json.loads(found["data"][ACCEPTED_SPEC]))
    except (KeyError, TypeError, ValueError):
        return None
