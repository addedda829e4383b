"""Named runs: the faults of each, drawn from a seed where there is something to draw. Pure."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.faults import Fault, Kind, Target
from chaos.schedule import spare

KILLS = 100
REST_MS = 500
TOPICS_ROUNDS = 2
ROLLED_MS = 3_000  # until segments have rolled


@dataclass(frozen=True)
class Cast:
    """Whom the faults of a scenario may hit, and what draws among them."""

    draw: random.Random
    nodes: int
    copies: int

    @property
    def everyone(self) -> tuple[int, ...]:
        """All nodes."""
        return tuple(range(1, self.nodes + 1))

    def some(self, count: int) -> tuple[int, ...]:
        """So many nodes."""
        return tuple(sorted(self.draw.sample(self.everyone, count)))

    def lasting(self, least_ms: int, most_ms: int) -> int:
        """For how long."""
        return self.draw.randint(least_ms, most_ms)

    def can_spare_one(self) -> bool:
        """Whether writes go on without a node."""
        return spare(self.copies) > 0


@dataclass(frozen=True)
class Scenario:
    """What is done; how many copies of each segment it takes to survive it, whether each node must have one, whether
    the metadata may lose commands, and whether nodes are only asked to stop, one at a time and while all others have
    caught up, so that nothing fails over. Whether records must go, of all topics that let some go, while faults are
    done.
    """

    what: str
    faults: Callable[[Cast], Iterator[Fault]]
    copies: int = 1
    everywhere: bool = False
    forgets: bool = False
    planned: bool = False
    vanishes: bool = False


def _short(cast: Cast) -> Iterator[Fault]:
    """A little of what finds most."""
    leader, through = Target.SEGMENT_LEADER, cast.can_spare_one()
    yield Fault(Kind.KILL, cast.some(1), 1_000, 0, leader, through)
    yield Fault(Kind.ISOLATE, cast.some(1), 3_000, 0, leader, through)
    yield Fault(Kind.KILL, cast.everyone, 500, 0)
    yield Fault(Kind.PAUSE, cast.some(1), 4_000, 0, leader, through)
    yield Fault(Kind.KILL, cast.some(1), 500, 0, Target.METADATA_LEADER)
    for _ in range(5):
        yield Fault(Kind.KILL, cast.some(1), cast.lasting(100, 1_000), 0)


def _kills(cast: Cast) -> Iterator[Fault]:
    for _ in range(KILLS):
        yield Fault(Kind.KILL, cast.some(1), cast.lasting(50, 1_500), cast.lasting(0, 300))


def _blackout(cast: Cast) -> Iterator[Fault]:
    for _ in range(5):
        yield Fault(Kind.KILL, cast.everyone, cast.lasting(100, 1_000), REST_MS)


def _zombie(cast: Cast) -> Iterator[Fault]:
    for _ in range(3):
        through = cast.can_spare_one()
        yield Fault(Kind.PAUSE, cast.some(1), cast.lasting(5_000, 7_000), REST_MS, Target.SEGMENT_LEADER, through)


def _partitions(cast: Cast) -> Iterator[Fault]:
    for kind in (Kind.ISOLATE, Kind.REFUSED, Kind.DEAF, Kind.MUTE, Kind.CUT_DATA, Kind.CUT_METADATA, Kind.HALF_OPEN):
        for target in (Target.SEGMENT_LEADER, Target.METADATA_LEADER):
            through = kind in (Kind.ISOLATE, Kind.REFUSED) and cast.can_spare_one()
            yield Fault(kind, cast.some(1), cast.lasting(3_000, 6_000), REST_MS, target, through)


def _majority(cast: Cast) -> Iterator[Fault]:
    """Writes go on without a minority; without a majority they wait until it is back."""
    for _ in range(2):
        minority = max(1, min(spare(cast.copies), (cast.nodes - 1) // 2))
        yield Fault(Kind.ISOLATE, cast.some(minority), 4_000, REST_MS, through=cast.can_spare_one())
        yield Fault(Kind.REFUSED, cast.some(cast.nodes // 2 + 1), 3_000, REST_MS)


def _late(cast: Cast) -> Iterator[Fault]:
    for _ in range(4):
        yield Fault(Kind.LATE, cast.some(1), cast.lasting(3_000, 6_000), REST_MS)


def _disks_full(cast: Cast) -> Iterator[Fault]:
    for _ in range(2):
        yield Fault(Kind.DISK_FULL, cast.some(1), cast.lasting(2_000, 5_000), REST_MS)
        yield Fault(Kind.DISK_FULL, cast.everyone, cast.lasting(2_000, 5_000), REST_MS)


def _disk_lost(cast: Cast) -> Iterator[Fault]:
    yield Fault(Kind.DISK_LOST, cast.some(1), cast.lasting(1_000, 3_000), REST_MS, through=cast.can_spare_one())


def _founder_emptied(cast: Cast) -> Iterator[Fault]:
    yield Fault(Kind.FOUNDER_EMPTIED, (1,), cast.lasting(1_000, 3_000), REST_MS)


def _lost_majority(cast: Cast) -> Iterator[Fault]:
    """All but one, twice: the second time what is lost was made by a recovery. Whoever is left was away just before, so
    that it has everything only once it has caught up.
    """
    for _ in range(2):
        lost = cast.some(cast.nodes - 1)
        left = tuple(node for node in cast.everyone if node not in lost)
        yield Fault(Kind.KILL, left, cast.lasting(500, 1_500), 0)
        yield Fault(Kind.LOST_MAJORITY, lost, cast.lasting(1_000, 3_000), ROLLED_MS)


def _journal_lost(cast: Cast) -> Iterator[Fault]:
    """One node after the other, each as another disk and whole again before the next."""
    for node in cast.some(2):
        yield Fault(Kind.JOURNAL_LOST, (node,), cast.lasting(300, 2_000), REST_MS)


def _open_rot(cast: Cast) -> Iterator[Fault]:
    for _ in range(3):
        yield Fault(Kind.OPEN_ROT, cast.some(1), cast.lasting(300, 1_000), REST_MS)


def _asleep(cast: Cast) -> Iterator[Fault]:
    """For as long as others take to lead, and for less: who wakes up must not answer from before."""
    for _ in range(10):
        yield Fault(Kind.PAUSE, cast.some(1), cast.lasting(100, 5_000), 0, Target.SEGMENT_LEADER)


def _damage(cast: Cast) -> Iterator[Fault]:
    """The same node each time: what is damaged is a minority of the copies."""
    node = cast.some(1)
    for _ in range(4):
        yield Fault(Kind.DAMAGE, node, cast.lasting(300, 1_000), REST_MS)


def _rot(cast: Cast) -> Iterator[Fault]:
    """A minority each time, and whole again before the next."""
    for _ in range(4):
        yield Fault(Kind.ROT, cast.some(1), cast.lasting(0, 1_000), REST_MS)


def _rollback(cast: Cast) -> Iterator[Fault]:
    node = cast.some(1)
    for _ in range(3):
        yield Fault(Kind.ROLLBACK, node, cast.lasting(1_000, 4_000), REST_MS)


def _rolled_back_topic(cast: Cast) -> Iterator[Fault]:
    for _ in range(2):
        yield Fault(Kind.ROLLED_BACK_TOPIC, cast.everyone, cast.lasting(300, 2_000), REST_MS)


def _rolling_restart(cast: Cast) -> Iterator[Fault]:
    for _ in range(3):
        for node in cast.everyone:
            yield Fault(Kind.STOP, (node,), 500, REST_MS)


def _topics(cast: Cast) -> Iterator[Fault]:
    """Faults of many kinds in any order: compactions, expiries and deletions are always under way."""
    leader, metadata, through = Target.SEGMENT_LEADER, Target.METADATA_LEADER, cast.can_spare_one()
    for _ in range(TOPICS_ROUNDS):
        faults = [
            Fault(Kind.KILL, cast.some(1), cast.lasting(500, 2_000), REST_MS, leader, through),
            Fault(Kind.KILL, cast.some(1), cast.lasting(100, 1_500), REST_MS, metadata),
            Fault(Kind.KILL, cast.everyone, cast.lasting(100, 1_000), REST_MS),
            *(Fault(Kind.KILL, cast.some(1), cast.lasting(300, 2_000), 0, Target.COMPACTOR) for _ in range(3)),
            Fault(Kind.PAUSE, cast.some(1), cast.lasting(2_000, 6_000), REST_MS, Target.COMPACTOR),
            Fault(Kind.CUT_METADATA, cast.some(1), cast.lasting(2_000, 5_000), REST_MS, Target.COMPACTOR),
            Fault(Kind.CRASH_LOOP, cast.some(1), cast.lasting(1_500, 4_000), REST_MS),
            Fault(Kind.STOP, cast.some(1), cast.lasting(300, 2_000), REST_MS),
            Fault(Kind.PAUSE, cast.some(1), cast.lasting(3_000, 7_000), REST_MS),
            Fault(Kind.ISOLATE, cast.some(1), cast.lasting(3_000, 7_000), REST_MS, through=through),
            Fault(Kind.CUT_DATA, cast.some(1), cast.lasting(2_000, 5_000), REST_MS),
            Fault(Kind.CUT_METADATA, cast.some(1), cast.lasting(2_000, 5_000), REST_MS, metadata),
            Fault(Kind.DISK_FULL, cast.some(1), cast.lasting(2_000, 4_000), REST_MS),
            Fault(Kind.CLOCK, cast.some(1), cast.lasting(1_000, 4_000), REST_MS),
        ]
        cast.draw.shuffle(faults)
        yield from faults


def _clocks(cast: Cast) -> Iterator[Fault]:
    """Nothing that a cluster does depends on the time of the day."""
    for _ in range(3):
        for target in (Target.SEGMENT_LEADER, Target.METADATA_LEADER):
            yield Fault(
                Kind.CLOCK, cast.some(1), cast.lasting(1_000, 4_000), REST_MS, target, through=cast.can_spare_one()
            )
        yield Fault(Kind.SUSPEND, cast.some(1), cast.lasting(0, 500), REST_MS)


SCENARIOS = {
    "short": Scenario("a kill, a partition, a pause, all at once, more kills: what CI runs", _short),
    "kills": Scenario(f"{KILLS} times SIGKILL of any node", _kills),
    "blackout": Scenario("all nodes are killed at once", _blackout),
    "zombie": Scenario("the leader is stopped past its lease, replaced, and wakes up", _zombie),
    "partitions": Scenario(
        "leaders are cut off: both ways, one way, from brokers only, from the metadata", _partitions
    ),
    "majority": Scenario("a minority is cut off, then a majority falls apart", _majority),
    "late": Scenario("connections deliver late, and out of order among each other", _late),
    "disks-full": Scenario("no byte is free: on one node, on all", _disks_full),
    "disk-lost": Scenario("a data directory is gone, a new disk takes its place", _disk_lost, copies=3, forgets=True),
    "founder-emptied": Scenario(
        "the founder's data are gone, and it is told to found a cluster again", _founder_emptied, copies=3, forgets=True
    ),
    "lost-majority": Scenario(
        "all disks but one are lost, and the metadata's majority with them: they go on by force",
        _lost_majority,
        copies=3,
        everywhere=True,
        forgets=True,
    ),
    "journal-lost": Scenario(
        "a store's journal loses its end: its node is another disk", _journal_lost, copies=3, forgets=True
    ),
    "open-rot": Scenario("bits of open segments flip on a minority", _open_rot, copies=3),
    "asleep": Scenario("leaders are stopped for a moment, or for longer, and answer again", _asleep),
    "damage": Scenario("bits of sealed segments flip on a minority", _damage, copies=3),
    "rot": Scenario("bits of sealed segments flip on a node that runs: it finds and mends them", _rot, copies=3),
    "rollback": Scenario("the metadata of a node is an older one", _rollback, copies=3, forgets=True),
    "rolled-back-topic": Scenario(
        "the metadata of all nodes are from before a topic, which is taken back", _rolled_back_topic, forgets=True
    ),
    "rolling-restart": Scenario("each node is restarted in turn", _rolling_restart, planned=True),
    "topics": Scenario(
        "faults of many kinds while topics let records go: too old, stood for by later ones, deleted",
        _topics,
        vanishes=True,
    ),
    "clocks": Scenario("clocks jump", _clocks),
}
