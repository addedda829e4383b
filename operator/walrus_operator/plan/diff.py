"""Whether an object is what it shall be."""

from __future__ import annotations

from typing import Any

from walrus_operator.api.units import amount_of
from walrus_operator.desired.names import HASH
from walrus_operator.objects import Manifest


def differs(desired: Manifest, observed: Manifest) -> bool:
    """Whether another manifest was applied last, or someone changed what was applied."""
    applied = observed["metadata"].get("annotations", {}).get(HASH)
    return bool(applied != desired["metadata"]["annotations"][HASH] or not _within(desired, observed))


def _within(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted is found; Kubernetes adds defaults of its own, and writes quantities in its way."""
    if wanted == found:
        return True
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_within(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_within(one, other) for one, other in zip(wanted, found, strict=True))
        )
    amount = amount_of(wanted) if isinstance(wanted, str | int) and not isinstance(wanted, bool) else None
    return amount is not None and isinstance(found, str | int) and amount == amount_of(found)
