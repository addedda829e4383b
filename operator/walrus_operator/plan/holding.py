"""What keeps the operator from stopping or emptying a broker that serves: the hour, or a nearly full disk. Pure.

Growth and repairs ask neither: they bring back what is missing. A drain that has begun goes on.
"""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.updates import Window
from walrus_operator.observe.snapshot import Broker, Snapshot
from walrus_operator.plan.actions import Gate, Wait

DISK_PERCENT_MAX = 95
"""Above this a broker could not take what others hand over to it."""


def held(spec: ClusterSpec, snapshot: Snapshot) -> Wait | None:
    """Why no broker that serves is stopped or emptied now for what the spec changes; None: nothing is in the way."""
    return _outside_of_windows(spec, snapshot) or _full(snapshot)


def _outside_of_windows(spec: ClusterSpec, snapshot: Snapshot) -> Wait | None:
    windows = [Window.parse(text) for text in spec.update_policy.maintenance_windows]
    if not windows or any(window.is_open(snapshot.at) for window in windows):
        return None
    opens = min(window.next_after(snapshot.at) for window in windows)
    return Wait(
        Gate.MAINTENANCE_WINDOW,
        f"brokers restart and go from {opens:%Y-%m-%dT%H:%MZ} on, as updatePolicy.maintenanceWindows says; take it out"
        " to have it done at once",
    )


def _full(snapshot: Snapshot) -> Wait | None:
    full = sorted(name for name, broker in snapshot.brokers.items() if broker is not None and _is_full(broker))
    if not full:
        return None
    return Wait(
        Gate.DISK_PRESSURE,
        f"a disk is more than {DISK_PERCENT_MAX} % full, and what a broker hands over could fill it: {', '.join(full)}."
        " Let records go (retention), or add brokers",
    )


def _is_full(broker: Broker) -> bool:
    used = broker.bytes_total - broker.bytes_free
    return broker.bytes_total > 0 and 100 * used > DISK_PERCENT_MAX * broker.bytes_total
