"""Suite `cluster`: whole brokers through their public listeners, driven by a native load generator."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from walrus_client.dev import NodeOptions

from walrus_bench import cpu
from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers, limits
from walrus_bench.suites.load import Load

BACKENDS = ("mmap", "direct")
LIMITS = ("durable_4k", "durable_bandwidth", "loopback_round_trip", "loopback_stream")
LOAD_CASES = {"broker_append_durable": "append_stream", "text_put_p50": "text_put"}
IDLE_MIN_S = 20.0  # the timers of an idle node are up to 10 s apart
QUIET_S = 5.0  # after the start, until idle is idle


@contextmanager
def one_broker(settings: Settings) -> Iterator[Prepared]:
    """Sets up a cluster of one broker for each backend; every sample has a topic of its own."""
    machine = limits.prepare(settings, LIMITS)
    with ExitStack() as stack:
        subjects: list[Subject] = []
        pids: list[int] = []
        for backend in BACKENDS:
            options = NodeOptions(backend=backend)
            running = brokers.running(settings.data_dir / f"broker-{backend}", nodes=1, options=options)
            cluster = stack.enter_context(running)
            pids += brokers.pids(cluster)
            load = Load(cluster, settings.seconds)
            subjects += [
                Subject(case, "walrus", backend, partial(load.run, load_case)) for case, load_case in LOAD_CASES.items()
            ]
        yield Prepared([*machine.subjects, *subjects], pids=pids, notes=machine.notes)


@contextmanager
def idle_brokers(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers that nobody asks for anything."""
    seconds = settings.seconds if settings.quick else max(settings.seconds, IDLE_MIN_S)
    with brokers.running(settings.data_dir / "idle", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        pids = brokers.pids(cluster)
        if not settings.quick:
            time.sleep(QUIET_S)
        yield Prepared([Subject("idle_cpu", "walrus", "auto", partial(idle_cpu, pids, seconds))], pids=pids)


def idle_cpu(pids: Sequence[int], seconds: float) -> Sample:
    """CPU time of all nodes together, in percent of one core."""
    try:
        start, before = time.monotonic(), cpu.process_cpu_s(pids)
        time.sleep(seconds)
        used, elapsed = cpu.process_cpu_s(pids) - before, time.monotonic() - start
    except ProcessLookupError as error:
        raise InvalidRunError(f"a broker ended while idle: {error}") from error
    return Sample(100 * used / elapsed, "% of a core", {"seconds": elapsed})
