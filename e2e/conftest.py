"""Clusters of real node processes for the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from walrus_client.dev import DevCluster, NodeOptions, start_cluster

StartCluster = Callable[..., DevCluster]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """Starts clusters that end with the module: `start(nodes=3, **options of the nodes)`."""
    clusters: list[DevCluster] = []

    def start(*, nodes: int = 3, directory: Path | None = None, **options: object) -> DevCluster:
        home = directory or tmp_path_factory.mktemp("cluster")
        cluster = start_cluster(home, nodes=nodes, options=NodeOptions(**{"segment_age_min": "0", **options}))  # type: ignore[arg-type]
        clusters.append(cluster)
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop()
