"""What each broker has on its own disk: read from it while all others stand still.

A frozen broker answers nobody, so what comes then comes from the copies of the one that runs. Nor does it help one that
was away: brokers are frozen only after all have caught up.
"""

import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from harness.waiting import wait_until
from walrus_client import Client, Segment, WalrusError
from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster, NodeState
from walrus_client.dev.ports import LOOPBACK

from flights.stream import TOPIC

CATCH_UP_MAX_S: Final = 60.0
ANSWER_MS: Final = 10_000

# By segment (uuid): SHA-256 of its batches as they are stored.
Copies = Mapping[str, str]


def own_copies(brokers: DevCluster, segments: Sequence[Segment]) -> dict[str, Copies]:
    """The copies of sealed *segments* that each broker has, by its name. Waits until every broker has caught up. Raises
    TimeoutError where one does not, WalrusError where one cannot be read.
    """
    wait_until("all brokers to catch up", lambda: all(map(_has_caught_up, brokers.nodes)), timeout_s=CATCH_UP_MAX_S)
    return {node.name: _own_copies(brokers, node, segments) for node in brokers.nodes}


def _has_caught_up(node: NodeState) -> bool:
    try:
        with AdminClient(f"{LOOPBACK}:{node.ports.admin}") as admin:
            return not admin.caught_up()
    except WalrusError:
        return False


def _own_copies(brokers: DevCluster, node: NodeState, segments: Sequence[Segment]) -> Copies:
    stored = [segment for segment in segments if any(replica.id == node.node_id for replica in segment.replicas)]
    with _alone(brokers, node):
        digests = {segment.uuid: _digest(node, segment) for segment in stored}
    return {uuid: digest for uuid, digest in digests.items() if digest is not None}


def _digest(node: NodeState, segment: Segment) -> str | None:
    """None if the broker does not have all of it."""
    digest, next_offset = hashlib.sha256(), segment.base_offset
    # A client of its own: it knows of no other broker.
    with Client(f"{LOOPBACK}:{node.ports.grpc}", retry_timeout_ms=0, request_timeout_ms=ANSWER_MS) as client:
        pages = client.read_batches(
            TOPIC, offset=segment.base_offset, end_offset=segment.end_offset, segment=segment.uuid
        )
        for page in pages:
            digest.update(page.batches)
            next_offset = page.next_offset
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
