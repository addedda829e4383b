"""Whether the definition of the resource is that of this release: one that is older prunes what it does not know."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from walrus_operator.api.crdgen import crd
from walrus_operator.kube.api import KubeApi, KubeError
from walrus_operator.objects import DEFINITION, Manifest, Ref
from walrus_operator.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_NAMED = 5


async def compare_definition(kube: KubeApi, metrics: Metrics) -> None:
    """Look at the definition and tell what differs, in the log and in a metric. Nothing else depends on it."""
    wanted = crd()
    ref = Ref(DEFINITION.name, "", wanted["metadata"]["name"])
    try:
        found = await kube.get(ref)
    except KubeError as error:
        log.info("%s is not compared with this release: %s", ref, error)
        return
    told = difference(wanted, found)
    metrics.definition_differs.set(told is not None)
    if told is not None:
        log.warning("%s %s", ref, told)


def difference(wanted: Manifest, found: Manifest | None) -> str | None:
    """What is wrong with the definition that was found, and what to do about it; None: nothing."""
    if found is None:
        return "is not there: apply the definitions of this release"
    ours, theirs = set(_fields(wanted)), set(_fields(found))
    if lacking := sorted(ours - theirs):
        return f"is older than this operator, and drops {_listed(lacking)}: apply the definitions of this release"
    if unknown := sorted(theirs - ours):
        return f"is newer than this operator, which does not know {_listed(unknown)}: upgrade the operator"
    return None


def _listed(fields: list[str]) -> str:
    more = f" and {len(fields) - _NAMED} more" if len(fields) > _NAMED else ""
    return ", ".join(fields[:_NAMED]) + more


def _fields(definition: Manifest) -> Iterator[str]:
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            yield from _below(schema.get("properties", {}).get(part, {}), part)


def _below(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _below(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _below(schema["items"], f"{path}[]")
