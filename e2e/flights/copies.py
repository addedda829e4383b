"""What each broker has on its own disk: read from it while all others stand still.

A frozen broker answers nobody, so what comes then comes from the copies of the one that runs.
"""

import hashlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from walrus_client import Client, Segment, WalrusError
from walrus_client.dev import DevCluster, NodeState

from flights.stream import TOPIC

WHOLE_SECONDS_MAX: Final = 60.0  # for a broker to fetch what it has missed
ANSWER_MS: Final = 2_000
PAUSE_SECONDS: Final = 0.5

# By segment (uuid): SHA-256 of its batches as they are stored.
Copies = Mapping[str, str]


def own_copies(brokers: DevCluster, segments: Sequence[Segment]) -> dict[str, Copies]:
    """The copies of sealed *segments* that each broker has, by its name; waits for those that are not whole yet."""
    return {node.name: _own_copies(brokers, node, segments) for node in brokers.nodes}


def _own_copies(brokers: DevCluster, node: NodeState, segments: Sequence[Segment]) -> Copies:
    deadline = time.monotonic() + WHOLE_SECONDS_MAX
    found: dict[str, str] = {}
    stored = [segment for segment in segments if any(replica.id == node.node_id for replica in segment.replicas)]
    while True:
        with _alone(brokers, node):
            for segment in stored:
                digest = found.get(segment.uuid) or _digest(node, segment)
                if digest is None:
                    break
                found[segment.uuid] = digest
        if len(found) == len(stored) or time.monotonic() > deadline:
            return found
        time.sleep(PAUSE_SECONDS)


def _digest(node: NodeState, segment: Segment) -> str | None:
    """None if the broker does not have all of it."""
    digest, next_offset = hashlib.sha256(), segment.base_offset
    try:
        # A client of its own: it knows of no other broker.
        with Client(f"127.0.0.1:{node.ports.grpc}", retry_timeout_ms=0, request_timeout_ms=ANSWER_MS) as client:
            pages = client.read_batches(
                TOPIC, offset=segment.base_offset, end_offset=segment.end_offset, segment=segment.uuid
            )
            for page in pages:
                digest.update(page.batches)
                next_offset = page.next_offset
    except WalrusError:
        return None
    return digest.hexdigest() if next_offset == segment.end_offset else None


@contextmanager
def _alone(brokers: DevCluster, node: NodeState) -> Iterator[None]:
    others = [other.name for other in brokers.nodes if other.name != node.name]
    try:
        for other in others:
            brokers.kill(other, number=signal.SIGSTOP)
        yield
    finally:
        for other in others:
            brokers.kill(other, number=signal.SIGCONT)
