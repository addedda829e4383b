"""Local clusters of real node processes, as `walrus dev` runs them.

with tempfile.TemporaryDirectory() as directory:
    cluster = start_cluster(directory, nodes=3, options=NodeOptions(segment_entries_max=1000))
    with Client(cluster.bootstrap) as client: ...
    cluster.kill("node-2")
    cluster.restart("node-2")
    cluster.stop()
"""

from walrus_client.dev.cluster import READY_TIMEOUT_S, DevCluster, NodeStatus, open_cluster, start_cluster
from walrus_client.dev.state import DEFAULT_DIRECTORY, DevError, NoCluster, NodeOptions, NodeState, Ports

__all__ = [
    "DEFAULT_DIRECTORY",
    "READY_TIMEOUT_S",
    "DevCluster",
    "DevError",
    "NoCluster",
    "NodeOptions",
    "NodeState",
    "NodeStatus",
    "Ports",
    "open_cluster",
    "start_cluster",
]
