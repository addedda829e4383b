"""The faults, as data. Pure: doing them is the business of `world`.

A fault hits nodes, lasts for a time, and is healed; after it writes must go on. What a cluster must survive depends on
how many copies a segment has: with one copy a fault may hold records back, and must never lose one; with three, two of
which acknowledge, a fault of one node must not even hold them back for long.
"""

from dataclasses import dataclass
from enum import StrEnum

CLOCK_WRONG_S = 3_600


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
    CUT_DATA = "cut-data"  # as isolate, but only between brokers: the metadata goes on as if nothing was
    CUT_METADATA = "cut-metadata"  # as isolate, but only the metadata: the brokers hear each other
    SLOW = "slow"  # what the nodes send is slow
    LATE = "late"  # what is sent to the nodes comes late, on each connection by another time: they are reordered
    HALF_OPEN = "half-open"  # connections to the nodes stand, and nothing comes through
    DISK_FULL = "disk-full"  # not one free byte
    DISK_LOST = "disk-lost"  # SIGKILL, all data is gone; a node on a new disk takes the place
    FOUNDER_EMPTIED = (
        "founder-emptied"  # the same to the first node, which is told to found a cluster when it starts again
    )
    LOST_MAJORITY = "lost-majority"  # SIGKILL, all data of two is gone; the metadata go on from the third, by force
    JOURNAL_LOST = "journal-lost"  # SIGKILL, the store's journal loses its end; the node comes back by itself
    OPEN_ROT = "open-rot"  # SIGKILL, bits of open segments are flipped; healed when all is mended
    DAMAGE = "damage"  # SIGKILL, bits of sealed segments are flipped, started again when healed
    ROT = "rot"  # bits of sealed segments are flipped under nodes that run; healed when they have mended all
    ROLLBACK = "rollback"  # SIGKILL, the metadata on the disk is an older one when it starts again
    ROLLED_BACK_TOPIC = "rolled-back-topic"  # SIGKILL; metadata from before a topic, which is taken back
    CLOCK = "clock"  # the wall clock is wrong by an hour, either way, and right again
    SUSPEND = "suspend"  # the clock that counts sleep jumps ahead by a minute: the machine was asleep


class Target(StrEnum):
    """Who is hit, if not nodes that the seed has drawn."""

    DRAWN = "drawn"
    METADATA_LEADER = "metadata-leader"
    COMPACTOR = "compactor"  # the node that compacts a topic, most likely while it does
    SEGMENT_LEADER = "segment-leader"  # the leader of the open segment of the workload's first partition


@dataclass(frozen=True)
class Traits:
    """What a kind of fault asks of the cluster, and how it is drawn. Weight 0: only in scenarios."""

    copies: int = 1  # a cluster with fewer copies of each segment need not survive it
    everyone: bool = True  # it may hit all nodes at once
    through: bool = False  # with enough copies elsewhere writes go on while it lasts
    lasting_ms: tuple[int, int] = (300, 5_000)
    weight: int = 2


TRAITS = {
    Kind.KILL: Traits(through=True, weight=5),
    Kind.CRASH_LOOP: Traits(lasting_ms=(1_500, 5_000)),
    Kind.STOP: Traits(through=True, weight=1),
    Kind.PAUSE: Traits(through=True, lasting_ms=(300, 8_000), weight=4),
    Kind.ISOLATE: Traits(everyone=False, through=True, lasting_ms=(500, 8_000), weight=4),
    Kind.DEAF: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.MUTE: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.REFUSED: Traits(everyone=False, through=True, lasting_ms=(500, 8_000)),
    Kind.CUT_DATA: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.CUT_METADATA: Traits(everyone=False, lasting_ms=(500, 8_000)),
    Kind.SLOW: Traits(lasting_ms=(1_000, 5_000), weight=1),
    Kind.LATE: Traits(lasting_ms=(1_000, 5_000)),
    Kind.HALF_OPEN: Traits(everyone=False, lasting_ms=(1_000, 8_000)),
    Kind.DISK_FULL: Traits(lasting_ms=(1_000, 5_000)),
    Kind.DISK_LOST: Traits(copies=3, everyone=False, lasting_ms=(1_000, 3_000), weight=0),
    Kind.FOUNDER_EMPTIED: Traits(copies=3, everyone=False, lasting_ms=(1_000, 3_000), weight=0),
    Kind.LOST_MAJORITY: Traits(copies=3, everyone=False, lasting_ms=(1_000, 3_000), weight=0),
    Kind.JOURNAL_LOST: Traits(copies=3, everyone=False, lasting_ms=(300, 2_000), weight=0),
    Kind.OPEN_ROT: Traits(copies=3, everyone=False, lasting_ms=(300, 2_000), weight=0),
    Kind.DAMAGE: Traits(copies=3, everyone=False, lasting_ms=(300, 2_000), weight=0),
    Kind.ROT: Traits(copies=3, everyone=False, lasting_ms=(0, 2_000), weight=0),
    Kind.ROLLBACK: Traits(copies=3, everyone=False, lasting_ms=(1_000, 5_000), weight=0),
    Kind.ROLLED_BACK_TOPIC: Traits(lasting_ms=(300, 2_000), weight=0),
    Kind.CLOCK: Traits(lasting_ms=(500, 5_000)),
    Kind.SUSPEND: Traits(lasting_ms=(0, 500), weight=1),
}


@dataclass(frozen=True)
class Fault:
    """One fault. `nodes` are numbers from 1 on; with another target than `DRAWN` they are found when it is done."""

    kind: Kind
    nodes: tuple[int, ...]
    lasting_ms: int
    rest_ms: int  # how long nothing is done after it was healed and writes went on
    target: Target = Target.DRAWN
    through: bool = False  # it is not healed before writes went on in spite of it

    @property
    def clock_wrong_s(self) -> int:
        """How far ahead a fault of clocks puts them; behind, if it is negative."""
        return CLOCK_WRONG_S if self.lasting_ms % 2 else -CLOCK_WRONG_S

    def __str__(self) -> str:
        who = " ".join(f"node-{node}" for node in self.nodes) if self.target is Target.DRAWN else str(self.target)
        how = ", until writes go on" if self.through else ""
        return f"{self.kind} {who} for {self.lasting_ms / 1000:.1f} s{how}"
