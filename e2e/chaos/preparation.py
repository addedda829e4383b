"""What some kinds of faults need around them: a workload that pauses."""

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.faults import Fault, Kind
from chaos.workload import DELIVERY_TIMEOUT_MS, Crew
from chaos.world import World

PAUSED_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000


@contextmanager
def prepared(world: World, crew: Crew, fault: Fault) -> Iterator[None]:
    """A fault is done and healed in this block."""
    match fault.kind:
        case Kind.LOST_MAJORITY:
            # What two disks acknowledged may be on the two that are lost, and nowhere else: nobody promises that.
            with crew.workload.gate.closed(PAUSED_TIMEOUT_S):
                world.wait_until_others_have_all(fault.nodes)
                yield
        case _:
            yield
