"""Suite `kafka`, one broker: Walrus beside Apache Kafka, under the same load by Kafka's protocol."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from walrus_client.dev import NodeOptions
from walrus_compat import apache

from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers, kafka_clients, limits
from walrus_bench.suites.load import Load
from walrus_bench.suites.raw_kafka import RawKafka, cluster_pids, p50, warm_up

BACKENDS = (None, "direct", "mmap")
LIMITS = ("durable_4k", "durable_bandwidth", "loopback_round_trip", "loopback_stream")
BATCH_16K = ("--batch-records", 15)  # Java's default: batches of 16 KiB
LZ4 = ("--codec", "lz4")
ONE_IN_FLIGHT = ("--producers", 1, "--in-flight", 1, "--batch-records", 1)
# Apache Kafka without a heap to fill the machine with; its page cache is outside.
HEAP = "2g"
WARM_UP_S = 120.0  # a cold broker of Apache Kafka is two to three times slower, and no peer
WARM_UP_OURS_S = 10.0
CONNECTIONS, QUICK_CONNECTIONS = 10_000, 100


@contextmanager
def one_broker(settings: Settings) -> Iterator[Prepared]:
    """Sets up a broker for each backend, and one of Apache Kafka; every sample has a topic of its own."""
    require_apache()
    machine = limits.prepare(settings, LIMITS)
    with ExitStack() as stack:
        ours: dict[str, tuple[RawKafka, Load]] = {}
        for backend in BACKENDS:
            name = backend or "auto"
            directory = settings.data_dir / f"walrus-{name}"
            cluster = stack.enter_context(brokers.running(directory, nodes=1, options=NodeOptions(backend=backend)))
            ours[name] = RawKafka.of_walrus(cluster, settings.seconds), Load(cluster, settings.seconds)
        kafka = stack.enter_context(apache.running(settings.data_dir / "apache", heap=HEAP))
        theirs = RawKafka.of_apache(kafka, settings.seconds)
        if not settings.quick:
            warm_up(theirs, WARM_UP_S)
            warm_up(ours["auto"][0], WARM_UP_OURS_S)
        # Idle connections come first: a broker that was at work has free memory for them, and would not grow.
        clients = CONNECTIONS if not settings.quick else QUICK_CONNECTIONS
        idle = partial(ours["direct"][0].run, "idle", "--clients", clients)
        subjects = [*machine.subjects, Subject("idle_connections", "walrus", "direct", idle, rounds_max=1)]
        for name, (raw, load) in ours.items():
            subjects += [
                Subject("broker_append_durable", "walrus", name, partial(load.run, "append_stream")),
                Subject("kafka_produce_durable", "walrus", name, partial(raw.durable, "produce")),
            ]
        subjects.append(Subject("kafka_produce_durable", "apache", "", partial(theirs.durable, "produce")))
        subjects += _beside(ours["auto"][0], theirs)
        pids = cluster_pids(theirs, *(raw for raw, _ in ours.values()))
        yield Prepared(subjects, pids=pids, notes=machine.notes)


def _beside(ours: RawKafka, theirs: RawKafka) -> Iterator[Subject]:
    """What is measured on both, one behind the other in each round."""
    cases: dict[str, Callable[[RawKafka], Sample]] = {
        "kafka_produce_16k": lambda raw: raw.durable("produce", *BATCH_16K),
        "kafka_produce_lz4": lambda raw: raw.durable("produce", *LZ4),
        "kafka_produce_p50": lambda raw: p50(raw.durable("produce", *ONE_IN_FLIGHT)),
        "kafka_nosync_p50": lambda raw: p50(raw.unsynced("produce", *ONE_IN_FLIGHT)),
        "kafka_produce_nosync": lambda raw: raw.unsynced("produce"),
        "kafka_fetch": lambda raw: raw.unsynced("fetch"),
        "kafka_tail": beside_a_tail,
        "kafka_e2e_nosync": lambda raw: raw.unsynced("end_to_end"),
        "kafka_produce_java": kafka_clients.java,
        "kafka_produce_librdkafka": kafka_clients.librdkafka,
    }
    for case, measure in cases.items():
        for raw in (ours, theirs):
            backend = "auto" if raw is ours else ""
            yield Subject(case, raw.system, backend, partial(measure, raw))
    quantiles = {"kafka_e2e": 0.5, "kafka_e2e_p99": 0.99}
    for raw in (ours, theirs):
        backend = "auto" if raw is ours else ""
        yield Subject("end_to_end", raw.system, backend, partial(raw.durable, "end_to_end"), quantiles)


def beside_a_tail(raw: RawKafka) -> Sample:
    """What is produced beside a reader at the end of the log, over what is produced alone."""
    alone, tailed = raw.durable("produce"), raw.durable("produce_tailed")
    return Sample(tailed.value / alone.value, "x", {"alone": alone.value, "tailed": tailed.value})


def require_apache() -> None:
    """Raises InvalidRunError where the jars of Apache Kafka are not there."""
    if not apache.is_there():
        raise InvalidRunError("Apache Kafka is measured beside, and its jars are not there: tools/setup compat")
