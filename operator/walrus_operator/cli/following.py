"""An order that was given is watched until it is carried out, refused, or taken back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from walrus_client.cli.exit_codes import Failed

from walrus_operator.cli.orders import Order, Seen, ordered, refused
from walrus_operator.cli.user import UserApi
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.api import Unreachable
from walrus_operator.objects import POD, Manifest, ref_of, uid_of
from walrus_operator.observe.pods import Pod

EACH_S = 1.0
"""How often Kubernetes is asked."""


async def follow(kube: UserApi, order: Order, before: Manifest, timeout_s: float, tell: Callable[[str], None]) -> str:
    """Look until the order is carried out, telling each time something is new; returns what it came to.

    Raises `Failed` where it never will be, as it is, or not in time: the order stands then.
    """
    began, last = time.monotonic(), ""
    while True:
        try:
            done, told = await _look(kube, order, before)
        except Unreachable as error:
            done, told = False, f"Kubernetes does not answer: {error}"
        if done:
            return told
        if told != last:
            tell(told)
            last = told
        if time.monotonic() - began > timeout_s:
            raise Failed(f"not done after {timeout_s:.0f} s, and still ordered: {told}")
        await asyncio.sleep(EACH_S)


async def _look(kube: UserApi, order: Order, before: Manifest) -> tuple[bool, str]:
    ref = ref_of(before)
    found = await kube.get(ref)
    if found is None or uid_of(found) != uid_of(before):
        raise Failed(f"{ref} was deleted meanwhile")
    if ordered(found, order.annotation) != order.value:
        raise Failed(f"someone took the order back, or gave another one: {order.annotation}")
    why = refused(order, found, before)
    if why:
        raise Failed(f"the operator does not carry it out as it is, and it is still ordered: {why}")
    pods = await kube.list(POD, ref.namespace, f"{LABEL_CLUSTER}={ref.name}")
    progress = order.progress(Seen(found, [*map(Pod.parse, pods)]))
    plan = (found.get("status") or {}).get("plan", {})
    held = f"; held up by {plan['blockedBy']}: {plan.get('detail', '')}" if plan.get("blockedBy") else ""
    return progress.done, progress.told + ("" if progress.done else held)
