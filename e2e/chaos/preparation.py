"""What some kinds of faults need around them: a workload that pauses, a topic that the metadata are to forget."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.waiting import wait_until
from walrus_client import Client

from chaos.faults import Fault, Kind
from chaos.gate import Gate
from chaos.workload import DELIVERY_TIMEOUT_MS, Crew
from chaos.world import World

PAUSED_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000
ROLLED_TIMEOUT_S = 120.0


@contextmanager
def prepared(world: World, crew: Crew, fault: Fault) -> Iterator[None]:
    """A fault is done and healed in this block."""
    match fault.kind:
        case Kind.LOST_MAJORITY:
            # What two disks acknowledged may be on the two that are lost, and nowhere else: nobody promises that.
            with crew.workload.gate.closed(PAUSED_TIMEOUT_S):
                world.wait_until_others_have_all(fault.nodes)
                yield
        case Kind.ROLLED_BACK_TOPIC:
            with _a_topic_to_forget(world, crew):
                yield
        case _:
            yield


@contextmanager
def _a_topic_to_forget(world: World, crew: Crew) -> Iterator[None]:
    """A topic of two partitions that is made after what the metadata go back to, and taken back after this block.

    The producer of the first one goes on with the id that it had; in the second one another producer comes afterwards.
    """
    topic, gate = f"chaos-forgotten-{len(crew.workload.places)}", Gate()
    world.keep_metadata(world.nodes)
    with Client(world.bootstrap) as client:
        client.create_topic(topic, partitions=2)
        crew.produce((topic, 0), gate)
        first = crew.produce((topic, 1), gate)

        def have_rolled() -> bool:
            crew.workload.raise_failure()
            return all(len(partition.segments) > 1 for partition in client.segments(topic))

        wait_until(f"the segments of {topic} to roll", have_rolled, timeout_s=ROLLED_TIMEOUT_S)
    crew.retire(first)
    with gate.closed(PAUSED_TIMEOUT_S):
        yield
        world.take_back(topic)
    crew.produce((topic, 1))
    for partition in range(2):
        crew.follow((topic, partition))
