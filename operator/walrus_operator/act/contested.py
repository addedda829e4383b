"""Applies that do not stick, as something else changes the object at once: told, and tried ever more rarely."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walrus_operator.clock import Monotonic
from walrus_operator.desired.names import HASH
from walrus_operator.objects import Manifest, Ref, ref_of
from walrus_operator.plan.actions import Apply, Gate, Plan, Wait
from walrus_operator.plan.diff import differs

_FIRST_S = 15.0
_LAST_S = 960.0


@dataclass(frozen=True)
class _Contest:
    """One object that was not stored as it was applied."""

    wanted: str
    """The hash of what was applied: something else is worth a try at once."""
    pause_s: float
    until: float


class Contested:
    """The objects that others change. Belongs to one operator; another one finds them anew."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._contests: dict[Ref, _Contest] = {}

    def held(self, plan: Plan) -> Plan:
        """The plan without applies that have just been shown to be in vain; what they wait for is told."""
        left, waits = [], []
        for action in plan.actions:
            if not isinstance(action, Apply) or not self._in_vain(action.manifest):
                left.append(action)
                continue
            waits.append(
                Wait(
                    Gate.CONTESTED,
                    f"{ref_of(action.manifest)} is changed by something else as soon as it is applied, such as a"
                    " mutating webhook: except objects with the label walrus.dev/cluster there; it is tried ever more"
                    " rarely",
                )
            )
        return replace(plan, actions=tuple(left), waits=(*plan.waits, *waits))

    def applied(self, wanted: Manifest, stored: Manifest) -> None:
        """Kubernetes stored this for what was applied."""
        if not differs(wanted, stored):
            self._contests.pop(ref_of(wanted), None)
            return
        before = self._of(wanted)
        pause = min(2 * before.pause_s, _LAST_S) if before is not None else _FIRST_S
        self._contests[ref_of(wanted)] = _Contest(_hash(wanted), pause, self._monotonic() + pause)

    def _in_vain(self, wanted: Manifest) -> bool:
        contest = self._of(wanted)
        return contest is not None and self._monotonic() < contest.until

    def _of(self, wanted: Manifest) -> _Contest | None:
        contest = self._contests.get(ref_of(wanted))
        return contest if contest is not None and contest.wanted == _hash(wanted) else None


def _hash(manifest: Manifest) -> str:
    return str(manifest["metadata"]["annotations"][HASH])
