"""Real brokers for a phase: processes of `walrus_node` on free ports, with data on the disk that is measured."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from walrus_client.dev import DevCluster, DevError, NodeOptions, NodeState, open_cluster, start_cluster

from walrus_bench.sampling import InvalidRunError

LOOPBACK = "127.0.0.1"
NODES = 3
LINES_TOLD = 20
REPLICATED = NodeOptions(replication_factor=NODES, write_quorum=2)


@contextmanager
def running(directory: Path, *, nodes: int, options: NodeOptions) -> Iterator[DevCluster]:
    """A cluster that serves; stopped, and its data removed, on leaving."""
    try:
        try:
            cluster = start_cluster(directory, nodes=nodes, options=options)
        except DevError as error:
            raise InvalidRunError(f"{nodes} brokers did not start: {error}") from error
        try:
            yield cluster
        except InvalidRunError as error:  # the logs go with the data
            for node in cluster.nodes:
                error.add_note(complaints(node.name, node.log_file))
            raise
    finally:
        with suppress(DevError):  # there is none if we were ended before it was made
            open_cluster(directory).stop()
        shutil.rmtree(directory, ignore_errors=True)


def complaints(name: str, log_file: Path) -> str:
    """The last warnings and errors that a broker logged."""
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    told = [line for line in lines if any(f" {level} " in line for level in ("WARN", "WARNING", "ERROR"))]
    return f"{name} in {log_file} complained:\n" + ("\n".join(told[-LINES_TOLD:]) or "of nothing")


def pids(cluster: DevCluster) -> list[int]:
    """The processes of the cluster."""
    return [node.process.pid for node in cluster.nodes if node.process is not None]


def listeners(node: NodeState) -> tuple[str, str, str, str]:
    """Where the load generator finds a broker."""
    return ("--grpc", f"{LOOPBACK}:{node.ports.grpc}", "--text", f"{LOOPBACK}:{node.ports.text}")
