"""The faults, as data. Pure: doing them is the business of `world`.

A fault hits nodes, lasts for a time, and is healed; after it writes must go on. What a cluster must survive depends on
how many copies a segment has: with one copy (today) a fault may hold records back, and must never lose one.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is done to the nodes of a fault."""

    KILL = "kill"  # SIGKILL; started again when the fault is healed
    CRASH_LOOP = "crash-loop"  # SIGKILL, again and again while they recover
    STOP = "stop"  # SIGTERM; started again when the fault is healed
    PAUSE = "pause"  # SIGSTOP, then SIGCONT: a process that wakes up in a later world
    ISOLATE = "isolate"  # the nodes hear none of the others, and the others do not hear them
    DEAF = "deaf"  # the nodes hear none of the others, who hear them
    MUTE = "mute"  # none of the others hears the nodes, who hear them
    REFUSED = "refused"  # as isolate, but connections are refused at once instead of timing out
    SLOW = "slow"  # what the nodes send is slow
    DISK_FULL = "disk-full"  # not one free byte


class Target(StrEnum):
    """Who is hit, if not nodes that the seed has drawn."""

    DRAWN = "drawn"
    METADATA_LEADER = "metadata-leader"


@dataclass(frozen=True)
class Traits:
    """What a kind of fault asks of the cluster, and how it is drawn."""

    copies: int = 1  # a cluster with fewer copies of each segment need not survive it
    everyone: bool = True  # it may hit all nodes at once
    lasting_ms: tuple[int, int] = (300, 5_000)
    weight: int = 2


TRAITS = {
    Kind.KILL: Traits(weight=5),
    Kind.CRASH_LOOP: Traits(lasting_ms=(1_500, 5_000)),
    Kind.STOP: Traits(weight=1),
    Kind.PAUSE: Traits(lasting_ms=(300, 8_000), weight=4),
    Kind.ISOLATE: Traits(everyone=False, lasting_ms=(500, 8_000), weight=4),
    Kind.DEAF: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.MUTE: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.REFUSED: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.SLOW: Traits(lasting_ms=(1_000, 5_000), weight=1),
    Kind.DISK_FULL: Traits(lasting_ms=(1_000, 5_000)),
}


@dataclass(frozen=True)
class Fault:
    """One fault. `nodes` are numbers from 1 on; with another target than `DRAWN` they are found when it is done."""

    kind: Kind
    nodes: tuple[int, ...]
    lasting_ms: int
    rest_ms: int  # of quiet after it was healed and writes went on
    target: Target = Target.DRAWN

    def __str__(self) -> str:
        who = " ".join(f"node-{node}" for node in self.nodes) if self.target is Target.DRAWN else str(self.target)
        return f"{self.kind} {who} for {self.lasting_ms / 1000:.1f} s"
