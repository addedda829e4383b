"""Whether the brokers that a spec leaves can hold what there is: asked before the first one goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from walrus_operator.observe.snapshot import Broker, Snapshot
from walrus_operator.plan.actions import Gate, Wait

DISK_PERCENT_MAX = 85
"""How full the disks that stay may become by what the others hand over."""


def too_few(leaving: Mapping[str, Sequence[str]], left: Mapping[str, int], snapshot: Snapshot) -> Wait | None:
    """Why the brokers that *leaving* names, by pool, cannot go; *left* is how many each pool shall have.

    Nothing is known without a metadata leader; then nobody goes either.
    """
    leading = snapshot.leader()
    if leading is None or not any(leaving.values()):
        return None
    return _too_few_copies(leaving, left, leading[1].copies_needed) or _too_full(leaving, left, snapshot)


def _too_few_copies(leaving: Mapping[str, Sequence[str]], left: Mapping[str, int], needed: int) -> Wait | None:
    brokers = sum(left.values())
    if brokers >= needed:
        return None
    return Wait(
        Gate.SHRINK_REFUSED,
        f"{needed} copies of the records of a topic are kept, and {brokers} brokers would be left:"
        f" {_advice(_kept_back(leaving, needed - brokers), left)}, or lower the topic's replication.factor first",
    )


def _too_full(leaving: Mapping[str, Sequence[str]], left: Mapping[str, int], snapshot: Snapshot) -> Wait | None:
    going = [pod for pods in leaving.values() for pod in pods]
    staying = [broker for pod, broker in snapshot.brokers.items() if broker is not None and pod not in going]
    moved = [snapshot.brokers.get(pod) for pod in going]
    told = [broker for broker in moved if broker is not None]
    if len(told) < len(moved) or len(staying) < sum(left.values()):
        return None  # who does not answer does not go, and nobody goes before all others are there
    for back in range(len(told) + 1):
        percent = percent_full([*staying, *told[:back]], sum(broker.bytes_held for broker in told[back:]))
        if percent <= DISK_PERCENT_MAX:
            break
    if back == 0:
        return None
    percent = percent_full(staying, sum(broker.bytes_held for broker in told))
    return Wait(
        Gate.SHRINK_REFUSED,
        f"the disks of the brokers that stay would be {percent} % full, and {DISK_PERCENT_MAX} % is the most:"
        f" {_advice(_kept_back(leaving, back), left)}, let records go (retention), or give the others larger disks",
    )


def percent_full(brokers: Sequence[Broker], more: int) -> int:
    """How full the disks of these brokers are together, with so many bytes more."""
    total = sum(broker.bytes_total for broker in brokers)
    used = total - sum(broker.bytes_free for broker in brokers) + more
    return -(-100 * used // total) if total else 100


def _kept_back(leaving: Mapping[str, Sequence[str]], number: int) -> dict[str, int]:
    """How many brokers more each pool keeps, where so many that would go stay."""
    kept = {}
    for pool, pods in leaving.items():
        kept[pool] = min(len(pods), number)
        number -= kept[pool]
    return {pool: count for pool, count in kept.items() if count}


def _advice(kept: Mapping[str, int], left: Mapping[str, int]) -> str:
    told = [
        f"set replicas of pool {pool} to {left[pool] + count}"
        if left.get(pool)
        else f"put pool {pool} back with replicas {count}"
        for pool, count in sorted(kept.items())
    ]
    return " and ".join(told) or "add brokers"
