"""Operators that die at each write of a story, and others that go on from what they left.

Nothing is replayed: the world is kept as it is before and after each write, and whoever comes then knows no more than
it. An operator that died inside of a pass is `SimApi.crash_at`; what counts is what it leaves, which is the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driving import converge
from simapi import Crash
from simkube import SimKube

Act = Callable[[SimKube], object]
"""Something that people or machines do."""


@dataclass(frozen=True)
class _Left:
    """What an operator left that died."""

    act: int
    """What had been done last, by its place in the story."""
    world: bytes
    seen: bytes
    """The same without what only tests count."""


def crash_at_each_write(
    kube: SimKube, acts: Sequence[Act], check: Act, settle: Callable[[SimKube], object] = converge
) -> SimKube:
    """Tell the story, each act followed by what operators make of it; then the rest of it from each write on.

    *check* looks at each end. Returns the one of an operator that never died.
    """
    left: list[_Left] = []
    for number, act in enumerate(acts):
        act(kube)
        kube.at_write = lambda number=number: _keep(kube, number, left)
        settle(kube)
        kube.at_write = None
    check(kube)
    assert left, "nothing was written: there is nowhere to die"
    for one in left:
        world = pickle.loads(one.world)
        settle(world)
        for act in acts[one.act + 1 :]:
            act(world)
            settle(world)
        check(world)
    return kube


def converge_over_crashes(kube: SimKube) -> int:
    """Operators go on from each other until one gets through; the next ones do not die. Returns how many died."""
    crashes = 0
    while True:
        try:
            converge(kube)
        except Crash:
            kube.crash_at, crashes = None, crashes + 1
        else:
            return crashes


def _keep(kube: SimKube, number: int, left: list[_Left]) -> None:
    """Unless nothing has happened since the last write: then whoever dies here leaves what was left there."""
    hook, kube.at_write = kube.at_write, None
    world = pickle.dumps(kube)
    counted, kube.calls, kube.writes = (kube.calls, kube.writes), None, 0
    seen = pickle.dumps(kube)
    kube.calls, kube.writes = counted
    if not left or (left[-1].act, left[-1].seen) != (number, seen):
        left.append(_Left(number, world, seen))
    kube.at_write = hook
