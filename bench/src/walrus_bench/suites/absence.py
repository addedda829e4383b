"""Suite `cluster`: how fast a broker that was away gets what it has missed."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from walrus_client import WalrusError
from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster, NodeState

from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers
from walrus_bench.suites.load import Load

AWAY_S = 60.0
MISSED_RECORDS, QUICK_MISSED_RECORDS = 2_000_000, 20_000
CATCH_UP_TIMEOUT_S = 300.0
LOOK_EVERY_S = 0.02


@contextmanager
def absence(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers of which one is killed, and comes back."""
    away_s, records = (0.0, QUICK_MISSED_RECORDS) if settings.quick else (AWAY_S, MISSED_RECORDS)
    with brokers.running(settings.data_dir / "absence", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        measure = partial(_catch_up, cluster, Load(cluster, settings.seconds), away_s, records)
        yield Prepared([Subject("catch_up", "walrus", "auto", measure, rounds_max=1)], pids=brokers.pids(cluster))


def _catch_up(cluster: DevCluster, load: Load, away_s: float, records: int) -> Sample:
    """MB/s of values, from the moment at which the node listens until it says that it lacks nothing."""
    victim = cluster.nodes[-1]
    cluster.kill(victim.name)
    left = time.monotonic()
    _until_it_is_missed(cluster, victim)
    load.on_topics("fill", "missed", "--records", records)
    threading.Event().wait(max(0.0, left + away_s - time.monotonic()))
    away_s = time.monotonic() - left
    start = threading.Thread(target=cluster.start, args=([victim.name],), daemon=True)
    start.start()
    seconds = _until_it_has_all(victim)
    start.join(CATCH_UP_TIMEOUT_S)
    missed_mb = records * RECORD_BYTES / 1e6
    return Sample(missed_mb / seconds, "MB/s", {"away_s": away_s, "missed_mb": missed_mb, "seconds": seconds})


def _until_it_is_missed(cluster: DevCluster, node: NodeState) -> None:
    """Until then it may be made the leader of a new topic."""
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    with AdminClient(f"{brokers.LOOPBACK}:{cluster.nodes[0].ports.admin}") as admin:
        while any(member.node_id == node.node_id and member.alive for member in admin.members()):
            if time.monotonic() > deadline:
                raise InvalidRunError(f"{node.name} is dead, and its lease does not lapse")
            threading.Event().wait(LOOK_EVERY_S)


def _until_it_has_all(node: NodeState) -> float:
    """How long that took, in seconds, from the moment at which other brokers could connect to it."""
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while not _listens(node) and time.monotonic() < deadline:
        threading.Event().wait(LOOK_EVERY_S)
    began = time.monotonic()
    missing: tuple[str, ...] = ("an answer",)
    with AdminClient(f"{brokers.LOOPBACK}:{node.ports.admin}") as admin:
        while missing and time.monotonic() < deadline:
            threading.Event().wait(LOOK_EVERY_S)
            with suppress(WalrusError):  # it does not answer yet
                missing = admin.caught_up()
    if missing:
        raise InvalidRunError(f"{node.name} still misses {', '.join(missing)} after {CATCH_UP_TIMEOUT_S:g} s")
    return time.monotonic() - began


def _listens(node: NodeState) -> bool:
    try:
        socket.create_connection((brokers.LOOPBACK, node.ports.peer), timeout=1.0).close()
    except OSError:
        return False
    return True
