"""Claims of brokers: what StatefulSets make them from, and what makes one larger."""

from __future__ import annotations

from typing import Any

from walrus_operator.objects import CLAIM, STATEFUL_SET, Manifest, Ref


def size_of(storage: dict[str, Any]) -> str | None:
    """The size that a pool's storage asks for; None for folders of nodes, which have none."""
    volume = storage.get("claim") or storage.get("local") or {}
    return volume.get("size")


def template_size(found: Manifest) -> str | None:
    """The size of the claims that a StatefulSet makes; None where it makes none."""
    assert found["kind"] == STATEFUL_SET.name
    templates = found["spec"].get("volumeClaimTemplates") or ()
    return next((one["spec"]["resources"]["requests"]["storage"] for one in templates), None)


def sized_claim(ref: Ref, uid: str, size: str) -> Manifest:
    """The claim with this size and nothing else said of it. With the uid, it never lands on another of its name."""
    return {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.name,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": uid},
        "spec": {"resources": {"requests": {"storage": size}}},
    }
