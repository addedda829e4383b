"""Whether claims can grow: Kubernetes is asked by a dry run, before anything is begun. No StorageClass is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.units import amount_of
from walrus_operator.desired.claims import sized_claim
from walrus_operator.kube.api import Denied, KubeApi, KubeError, Refused
from walrus_operator.objects import CLAIM, Ref
from walrus_operator.observe.claims import Claim
from walrus_operator.observe.snapshot import Snapshot, StaysSmall


async def stay_small(kube: KubeApi, seen: Snapshot, spec: ClusterSpec) -> Mapping[str, StaysSmall]:
    """The pools whose claims would have to grow, have not begun to, and cannot, with what Kubernetes said."""
    asked = {
        pool.name: (size, claim)
        for pool in spec.pools
        if (size := pool.storage.size) and (claim := _first(pool.name, size, seen))
    }
    told = await asyncio.gather(*(_ask(kube, seen, size, claim) for size, claim in asked.values()))
    return {pool: stays for pool, stays in zip(asked, told, strict=True) if stays is not None}


def _first(pool: str, size: str, seen: Snapshot) -> Claim | None:
    """The claim that would grow first; None where there is none, or one has begun."""
    wanted = amount_of(size) or 0
    claims = seen.claims_of(pool)
    if any((amount_of(claim.size) or 0) >= wanted for claim in claims):
        return None
    return next(iter(claims), None)


async def _ask(kube: KubeApi, seen: Snapshot, size: str, claim: Claim) -> StaysSmall | None:
    names = seen.cluster.names
    name = names.claim(names.pod(claim.pool, claim.ordinal))
    try:
        await kube.try_apply(sized_claim(Ref(CLAIM.name, names.namespace, name), claim.uid, size))
    except (Denied, Refused) as error:
        return StaysSmall(name, str(error), refused=True)
    except KubeError as error:
        return StaysSmall(name, str(error), refused=False)
    return None
