"""Suite `cluster`: commands of the metadata, each until a majority has it on disk and it is applied."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster

from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers

SETTING = "scrub.bytes_per_second"  # no broker looks at its segments because of it
VALUES = (1 << 30, (1 << 30) + 1)


@contextmanager
def commits(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers, all of which vote, that nobody else asks for anything."""
    with brokers.running(settings.data_dir / "commits", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        measure = partial(commit_p50, cluster, max(settings.seconds, 1.0))
        yield Prepared([Subject("metadata_commit_p50", "walrus", "auto", measure)], pids=brokers.pids(cluster))


def commit_p50(cluster: DevCluster, seconds: float) -> Sample:
    """What one command takes, the call of the admin service of the metadata's leader included, in ms (p50)."""
    with AdminClient(cluster.admin_addresses, secret_file=cluster.secret_file) as client:
        metadata = client.status().metadata
    leading = (node.ports for node in cluster.nodes if metadata is not None and node.node_id == metadata.leader)
    ports = next(leading, cluster.nodes[0].ports)
    admin = f"{brokers.LOOPBACK}:{ports.admin}"
    took: list[float] = []
    with AdminClient(admin, secret_file=cluster.secret_file) as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            client.set_config({SETTING: VALUES[len(took) % 2]})
            took.append((time.monotonic() - began) * 1_000)
    return Sample(statistics.median(took), "ms", {"commands": len(took), "most_ms": max(took)})
