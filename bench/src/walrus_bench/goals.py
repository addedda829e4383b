"""What is measured, against which limit of the machine, and what counts as good enough."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

RECORD_BYTES = 1024


class Better(Enum):
    """Which way is better."""

    HIGHER = ">="
    LOWER = "<="


class Measure(Enum):
    """What of a row is held against the bound."""

    VALUE = "value"
    RATIO = "ratio"  # the value divided by the limit


@dataclass(frozen=True)
class Goal:
    """What a case must reach. `limit` names one of `known_limits`; None where the machine sets none. Without a bound it
    is only shown.
    """

    unit: str
    limit: str | None
    measure: Measure
    better: Better
    bound: float | None
    ratio_bound: float | None = None  # where the value has a bound: what its ratio to the limit has to reach, too

    def __str__(self) -> str:
        if self.bound is None:
            return ""
        unit = "" if self.measure is Measure.RATIO else f" {self.unit}"
        beside = f", ratio {self.better.value} {self.ratio_bound:,g}" if self.ratio_bound is not None else ""
        return f"{self.measure.value} {self.better.value} {self.bound:,g}{unit}{beside}"

    def is_met(self, *, value: float, ratio: float | None) -> bool:
        """Whether a row reaches the bound; a row without a bound or without the figure that counts does not."""
        figure = value if self.measure is Measure.VALUE else ratio
        if figure is None or self.bound is None:
            return False
        return self._reaches(figure, self.bound) and (
            self.ratio_bound is None or (ratio is not None and self._reaches(ratio, self.ratio_bound))
        )

    def _reaches(self, figure: float, bound: float) -> bool:
        return figure >= bound if self.better is Better.HIGHER else figure <= bound

    def bound_as_value(self, limit: float | None) -> float | None:
        """Returns the bound in the unit of the value."""
        if self.measure is Measure.VALUE:
            return self.bound
        return None if limit is None or self.bound is None else self.bound * limit


LOGS = (1, 8, 1_000, 100_000)
RECORD_SIZES = (100, 1_024, 16_384)


def durable_logs(logs: int, record_bytes: int) -> str:
    """Names the case of durable appends to so many logs."""
    return f"durable_{logs}_logs_{record_bytes}b"


# What is measured as a cluster grows, and its unit.
SCALE_FIGURES: Mapping[str, str] = {
    "idle": "% of a core",
    "memory": "MB",
    "commands": "1/s",
    "failover": "s",
    "start": "s",
}

GOALS: Mapping[str, Goal] = {
    "durable_1_caller": Goal("records/s", "durable_4k", Measure.RATIO, Better.HIGHER, 0.95),
    "durable_8_topics": Goal("records/s", "group_commit_8", Measure.RATIO, Better.HIGHER, 1.0),
    "durable_batch_2000": Goal("MB/s", "durable_bandwidth_fresh", Measure.RATIO, Better.HIGHER, 0.6),
    "nosync_1_caller": Goal("ns/record", "record_copy", Measure.VALUE, Better.LOWER, 250),
    "nosync_mmap_over_direct": Goal("x", None, Measure.VALUE, Better.LOWER, 2.0),
    "nosync_sustained": Goal("MB/s", "durable_bandwidth", Measure.VALUE, Better.HIGHER, 1_000),
    "sealed_read": Goal("MB/s", None, Measure.VALUE, Better.HIGHER, 2_000),
    "strict_cursor_read": Goal("records/s", "durable_4k", Measure.RATIO, Better.HIGHER, 0.8),
    "strict_cursor_read_8": Goal("records/s", "group_commit_8", Measure.RATIO, Better.HIGHER, 0.8),
    "python_append": Goal("us", None, Measure.VALUE, Better.LOWER, 0.5),
    "python_packed": Goal("us", None, Measure.VALUE, Better.LOWER, 0.25),
    "bytes_per_100b": Goal("B/record", None, Measure.VALUE, Better.LOWER, 112),
    "recovery_10gb": Goal("ms", None, Measure.VALUE, Better.LOWER, 200),
    "open_100k_logs": Goal("s", None, Measure.VALUE, Better.LOWER, 2),
    "broker_append_durable": Goal("records/s", "durable_stream", Measure.VALUE, Better.HIGHER, 100_000),
    "mmap_over_direct": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.95),
    "text_put_p50": Goal("us", "durable_4k_p50", Measure.RATIO, Better.LOWER, 3.0),
    "text_mmap_over_direct": Goal("x", None, Measure.VALUE, Better.LOWER, 1.1),
    "kill_to_ack_p50": Goal("s", None, Measure.VALUE, Better.LOWER, 0.7),
    "kill_to_ack_p99": Goal("s", None, Measure.VALUE, Better.LOWER, 4),
    "silent_host_p99": Goal("s", None, Measure.VALUE, Better.LOWER, 4),
    "planned_roll_pause_p99": Goal("ms", None, Measure.VALUE, Better.LOWER, 50),
    "roll_by_producers": Goal("x", None, Measure.VALUE, Better.LOWER, 1.5),
    "replicated_append": Goal("records/s", "durable_stream", Measure.VALUE, Better.HIGHER, 100_000),
    "replicated_append_p50": Goal("us", "durable_4k_p50", Measure.RATIO, Better.LOWER, 4.0),
    "replicated_over_single": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.3),
    "catch_up": Goal("MB/s", None, Measure.VALUE, Better.HIGHER, 200),
    "metadata_commit_p50": Goal("ms", None, Measure.VALUE, Better.LOWER, 50),
    "idle_cpu": Goal("% of a core", None, Measure.VALUE, Better.LOWER, 8),
    "topics_10k_create_s": Goal("s", None, Measure.VALUE, Better.LOWER, 18),
    "topics_10k_restart_s": Goal("s", None, Measure.VALUE, Better.LOWER, 5),
    "topics_10k_idle": Goal("% of a core", None, Measure.VALUE, Better.LOWER, 15),
    "topic_bytes": Goal("B/topic", None, Measure.VALUE, Better.LOWER, 8_192),
    "metadata_commit_growth": Goal("x", None, Measure.VALUE, Better.LOWER, 1.5),
    "compaction": Goal("MB/s", None, Measure.VALUE, Better.HIGHER, 200),
    "compaction_memory": Goal("MiB", None, Measure.VALUE, Better.LOWER, 64),
    "append_beside_compaction": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.8),
    "retention_10gb_s": Goal("s", None, Measure.VALUE, Better.LOWER, 5),
    "kafka_produce_durable": Goal("records/s", "durable_stream", Measure.VALUE, Better.HIGHER, None),
    "kafka_produce_over_grpc": Goal("x", None, Measure.VALUE, Better.HIGHER, 1.1),
    "kafka_produce_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 2.0),
    "kafka_produce_mmap_over_grpc": Goal("x", None, Measure.VALUE, Better.HIGHER, 1.0),
    "kafka_produce_16k": Goal("records/s", None, Measure.VALUE, Better.HIGHER, 250_000),
    "kafka_16k_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 2.0),
    "kafka_produce_lz4": Goal("records/s", None, Measure.VALUE, Better.HIGHER, None),
    "kafka_lz4_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 1.0),
    "kafka_produce_p50": Goal("us", "durable_round_trip_p50", Measure.RATIO, Better.LOWER, 1.3),
    "kafka_nosync_p50": Goal("us", "loopback_round_trip", Measure.VALUE, Better.LOWER, None),
    "kafka_nosync_p50_over_apache": Goal("x", None, Measure.VALUE, Better.LOWER, 1.0),
    "kafka_produce_nosync": Goal("records/s", None, Measure.VALUE, Better.HIGHER, None),
    "kafka_nosync_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 1.3),
    "kafka_produce_java": Goal("records/s", None, Measure.VALUE, Better.HIGHER, None),
    "kafka_produce_librdkafka": Goal("records/s", None, Measure.VALUE, Better.HIGHER, None),
    "kafka_fetch": Goal("MB/s", "loopback_stream", Measure.RATIO, Better.HIGHER, 0.5),
    "kafka_fetch_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 1.1),
    "kafka_tail": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.8),
    "kafka_e2e": Goal("us", None, Measure.VALUE, Better.LOWER, 500),
    "kafka_e2e_p99": Goal("us", None, Measure.VALUE, Better.LOWER, 3_000),
    "kafka_e2e_nosync": Goal("us", None, Measure.VALUE, Better.LOWER, None),
    "kafka_e2e_nosync_over_apache": Goal("x", None, Measure.VALUE, Better.LOWER, 1.0),
    "kafka_e2e_replicated": Goal("us", None, Measure.VALUE, Better.LOWER, 1_000),
    "kafka_produce_replicated": Goal("records/s", None, Measure.VALUE, Better.HIGHER, 350_000),
    "kafka_replicated_over_apache": Goal("x", None, Measure.VALUE, Better.HIGHER, 2.0),
    "idle_connections": Goal("KiB", None, Measure.VALUE, Better.LOWER, 12),
    "rebalance_50": Goal("s", None, Measure.VALUE, Better.LOWER, 1),
    "coordinator_failover": Goal("s", None, Measure.VALUE, Better.LOWER, 2),
    "offset_commits": Goal("commits/s", None, Measure.VALUE, Better.HIGHER, 5_000),
    "group_load": Goal("s", None, Measure.VALUE, Better.LOWER, 5),
    "metadata_10k": Goal("ms", None, Measure.VALUE, Better.LOWER, 100),
    "metadata_10k_beside": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.9),
    **{
        f"scale_{axis}_{figure}": Goal(unit, None, Measure.VALUE, Better.LOWER, None)
        for axis in ("nodes", "partitions")
        for figure, unit in SCALE_FIGURES.items()
    },
    "scale_rolls_a_second": Goal("1/s", None, Measure.VALUE, Better.HIGHER, None),
    "scale_connections_kb_each": Goal("kB", None, Measure.VALUE, Better.LOWER, None),
    "scale_connections_idle": Goal("% of a core", None, Measure.VALUE, Better.LOWER, None),
    "spark_source": Goal("MB/s", "spark_ready", Measure.VALUE, Better.HIGHER, 300, ratio_bound=0.6),
    "spark_source_small": Goal("rows/s", "spark_ready_small", Measure.VALUE, Better.HIGHER, 600_000),
    "spark_open_over_sealed": Goal("x", None, Measure.VALUE, Better.HIGHER, 0.9),
    "spark_archive": Goal("MB/s", "spark_ready", Measure.VALUE, Better.HIGHER, 150),
    **{
        durable_logs(logs, size): Goal(
            "records/s", "durable_4k" if logs == 1 else "group_commit_8", Measure.RATIO, Better.HIGHER, None
        )
        for logs in LOGS
        for size in RECORD_SIZES
    },
}


@dataclass(frozen=True)
class Compared:
    """What is measured in each round: a case on a system and a backend."""

    case: str
    backend: str
    system: str = "walrus"


@dataclass(frozen=True)
class Comparison:
    """What one case, system or backend gives in a round, over what another gives in the same round."""

    of: Compared
    over: Compared


def _backends(case: str, backend: str, *, over: str) -> Comparison:
    return Comparison(Compared(case, backend), Compared(case, over))


def _over_apache(case: str) -> Comparison:
    return Comparison(Compared(case, "auto"), Compared(case, "", "apache"))


COMPARISONS: Mapping[str, Comparison] = {
    "nosync_mmap_over_direct": _backends("nosync_1_caller", "mmap", over="direct"),
    "mmap_over_direct": _backends("broker_append_durable", "mmap", over="direct"),
    "text_mmap_over_direct": _backends("text_put_p50", "mmap", over="direct"),
    "kafka_produce_over_grpc": Comparison(
        Compared("kafka_produce_durable", "auto"), Compared("broker_append_durable", "auto")
    ),
    "kafka_produce_mmap_over_grpc": Comparison(
        Compared("kafka_produce_durable", "mmap"), Compared("broker_append_durable", "mmap")
    ),
    "kafka_produce_over_apache": _over_apache("kafka_produce_durable"),
    "kafka_16k_over_apache": _over_apache("kafka_produce_16k"),
    "kafka_lz4_over_apache": _over_apache("kafka_produce_lz4"),
    "kafka_nosync_p50_over_apache": _over_apache("kafka_nosync_p50"),
    "kafka_nosync_over_apache": _over_apache("kafka_produce_nosync"),
    "kafka_fetch_over_apache": _over_apache("kafka_fetch"),
    "kafka_e2e_nosync_over_apache": _over_apache("kafka_e2e_nosync"),
    "kafka_replicated_over_apache": _over_apache("kafka_produce_replicated"),
}


@dataclass(frozen=True)
class Limit:
    """A limit read from the samples of one probe: their value, or one of their facts."""

    probe: str
    unit: str
    fact: str | None = None


PROBED_LIMITS: Mapping[str, Limit] = {
    "durable_4k": Limit("durable_4k", "writes/s"),
    "durable_4k_p50": Limit("durable_4k", "us", fact="p50_us"),
    "durable_bandwidth": Limit("durable_bandwidth", "MB/s"),
    "durable_bandwidth_fresh": Limit("durable_bandwidth_fresh", "MB/s"),
    "group_commit_8": Limit("group_commit_8", "records/s"),
    "record_copy": Limit("record_copy", "ns/record"),
    "loopback_round_trip": Limit("loopback_round_trip", "us"),
    "loopback_stream": Limit("loopback_stream", "MB/s"),
    "spark_ready": Limit("spark_ready", "MB/s"),
    "spark_ready_small": Limit("spark_ready_small", "rows/s"),
}


def known_limits(probed: Mapping[str, float]) -> dict[str, float]:
    """Adds to the probed limits those that follow from them."""
    limits = dict(probed)
    if "loopback_stream" in probed and "durable_bandwidth" in probed:
        # records of a durable stream must pass the network and the disk
        bytes_per_second = min(probed["loopback_stream"], probed["durable_bandwidth"]) * 1e6
        limits["durable_stream"] = bytes_per_second / RECORD_BYTES
    if "loopback_round_trip" in probed and "durable_4k_p50" in probed:
        # one request reaches the broker, is written, and is answered
        limits["durable_round_trip_p50"] = probed["durable_4k_p50"] + probed["loopback_round_trip"]
    return limits
