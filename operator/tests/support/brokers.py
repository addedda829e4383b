"""A broker that serves and leads."""

from walrus_operator.observe.snapshot import Broker, Replication

BROKER = Broker(
    cluster_id="c",
    node_id=1,
    disk="d",
    version="1.0.0",
    missing=(),
    role="Leader",
    term=3,
    segments_led=2,
    under_replicated=0,
    replication=Replication(3, 2),
    spare_brokers=1,
    config_version=0,
    backend_asked="mmap",
    backend_in_use="mmap",
    backend_reason="",
    synced_writes="direct",
    cached_reason="",
    bytes_free=50,
    bytes_total=100,
)
