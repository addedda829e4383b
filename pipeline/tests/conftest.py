"""What the tests of the Spark side share: one Spark session and one cluster of real brokers for the whole run."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Tests are modules without packages (importlib mode); what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from appended import SEGMENT_ENTRIES_MAX, record_of
from hypothesis import settings
from pyspark.sql import SparkSession
from pyspark_walrus import archive as archive_module
from pyspark_walrus.archive import archive
from pyspark_walrus.session import JAVA_SHORT, create_session
from retold import Retold
from walrus_client import Client
from walrus_client.dev import DevCluster, NodeOptions, start_cluster

# The machine is shared: how long one example takes says nothing.
settings.register_profile("walrus", deadline=None)
settings.load_profile("walrus")


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Java and the workers say."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator[SparkSession]:
    session = create_session("tests", master="local[2,4]", java_options=JAVA_SHORT, log_file=spark_log)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    options = NodeOptions(segment_entries_max=SEGMENT_ENTRIES_MAX, segment_age_min="0")
    started = start_cluster(tmp_path_factory.mktemp("cluster"), nodes=3, options=options)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def client(cluster: DevCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap) as connected:
        yield connected


@pytest.fixture
def retold(cluster: DevCluster) -> Iterator[Retold]:
    """The cluster, about whose topics a test may tell something else."""
    with Retold(cluster.bootstrap) as node:
        yield node


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of one partition for one test."""
    name = f"{request.node.originalname[:60]}-{next(_numbers)}"
    client.create_topic(name)
    return name


@pytest.fixture
def append(client: Client) -> Callable[..., None]:
    """Appends numbered records to a partition; `record_of` tells what the record of an offset looks like."""

    def _append(topic: str, *, start: int, end: int, partition: int = 0) -> None:
        for first in range(start, end, 100):
            rows = [record_of(offset) for offset in range(first, min(first + 100, end))]
            assert client.append(topic, rows, partition=partition).base_offset == first

    return _append


@pytest.fixture
def reader(spark, cluster):
    """Starts a batch query; keywords are options."""

    def _reader(topic, **options):
        source = spark.read.format("walrus").option("bootstrap.servers", cluster.bootstrap)
        return source.option("subscribe", topic).options(**options).load()

    return _reader


@pytest.fixture
def stream(spark, cluster, tmp_path):
    """Starts a stream from the beginning into *sink*, a function of (rows, batch id), with one checkpoint per test."""

    def _stream(topic, sink, *, available_now=True, servers=None, **options):
        source = spark.readStream.format("walrus").option("bootstrap.servers", servers or cluster.bootstrap)
        source = source.option("subscribe", topic).options(**{"startingOffsets": "earliest", **options})
        writer = source.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    return _stream


@pytest.fixture
def run(spark, cluster, tmp_path):
    """Archives a topic into a folder below tmp_path."""

    def _run(topic, folder="a", *, servers=None, **more):
        return archive(
            spark, bootstrap_servers=servers or cluster.bootstrap, topic=topic, path=tmp_path / folder, **more
        )

    return _run


@pytest.fixture
def failing_at(monkeypatch):
    """A context in which tasks fail at an offset, when some files of the micro-batch may be written already."""

    @contextmanager
    def _failing_at(offset):
        month = archive_module.MONTH
        with monkeypatch.context() as broken:
            broken.setattr(archive_module, "MONTH", f"if(offset = {offset}, raise_error('on purpose'), {month})")
            yield

    return _failing_at


_numbers = itertools.count()
