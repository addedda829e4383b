"""A manifest: what is applied, and how to tell it from another."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from walrus_operator.api.cluster import API_VERSION, KIND
from walrus_operator.desired.names import HASH, Names
from walrus_operator.objects import Kind, Manifest


@dataclass(frozen=True)
class Owner:
    """The WalrusCluster that owns everything; Kubernetes removes what it owns after it."""

    names: Names
    uid: str

    def reference(self) -> Manifest:
        """The owner reference."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.names.cluster,
            "uid": self.uid,
            "controller": True,
        }


def object_of(owner: Owner, kind: Kind, name: str, *, pool: str | None = None, **rest: Any) -> Manifest:
    """An object of the cluster: labelled, owned, the rest as given."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": name,
            "namespace": owner.names.namespace,
            "labels": owner.names.labels(pool),
            "ownerReferences": [owner.reference()],
        },
        **rest,
    }


def taking_over(manifest: Manifest, found: Manifest) -> Manifest:
    """The manifest, said of an object that may have had another owner: that one controls it no more.

    Owner references of several managers are merged by uid, and Kubernetes refuses an object with two controllers. One
    that is left is removed by Kubernetes, as nothing of that uid is there.
    """
    ours = manifest["metadata"]["ownerReferences"]
    uids = {reference["uid"] for reference in ours}
    former = [
        {**reference, "controller": False}
        for reference in found["metadata"].get("ownerReferences", ())
        if reference.get("controller") and reference["uid"] not in uids
    ]
    if not former:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [*ours, *former]}}


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its hash, by which a later look tells whether it is the one applied."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), HASH: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
