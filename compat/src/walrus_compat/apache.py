"""Apache Kafka itself: brokers on this machine, from its jars, to compare with. Data and logs are in one folder."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from walrus_compat.clients import cache

VERSION = "4.4.0"
LOOPBACK = "127.0.0.1"
START_S, STOP_S = 120.0, 120.0
SETTINGS_FILE = "server.properties"
CLUSTER_ID = "walrus-compat-cluster0"  # 22 characters, as a base64 UUID has
# What a laptop's brokers need less of than a data centre's; the rest is as Kafka ships it.
SETTINGS: Mapping[str, str | int] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 8,
    # Topics are deleted at once, and not a minute later, while something else is measured.
    "log.segment.delete.delay.ms": 100,
}


class KafkaError(Exception):
    """A broker of Apache Kafka did not start, or a command failed."""


def jars() -> Path:
    """The folder of its jars, which `tools/setup compat` fetches."""
    return cache() / "jars" / f"kafka-{VERSION}"


def is_there() -> bool:
    """Whether its jars were fetched."""
    return any(jars().glob("kafka_*.jar"))


def java(
    main: str, *arguments: str | Path, heap: str = "256m", options: Sequence[str] = (), before: Sequence[Path] = ()
) -> list[str]:
    """The command of one of its programs; folders of jars `before` its own take their place."""
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    memory = (f"-Xmx{heap}", f"-Xms{heap}")
    path = ":".join(f"{folder}/*" for folder in (*before, jars()))
    return ["java", *memory, *options, logging, "-cp", path, main, *map(str, arguments)]


@dataclass
class Broker:
    """One broker, in a folder of its own, which has been formatted; `process` is the last one that was started."""

    number: int
    port: int
    home: Path
    heap: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and do not wait."""
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - the arguments are our own
                java("kafka.Kafka", self.home / SETTINGS_FILE, heap=self.heap),
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
            )

    def wait_until_it_serves(self) -> None:
        """Return when it takes connections."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                with socket.create_connection((LOOPBACK, self.port), timeout=1):
                    return
            except OSError as error:
                has_ended = self.process is None or self.process.poll() is not None
                if has_ended or time.monotonic() > deadline:
                    last = (self.home / "log").read_text(errors="replace")[-2000:]
                    raise KafkaError(f"broker {self.number} of Apache Kafka does not serve: {last}") from error
            time.sleep(0.1)

    def stop(self) -> None:
        """Have it hand over what it leads and end, while others are at work."""
        assert self.process is not None, "it was started"
        self.process.terminate()
        self.process.wait(STOP_S)

    def kill(self) -> None:
        """Kill it: a broker that is asked to stop waits for others, where all are to end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Kafka:
    """A cluster of Apache Kafka at work."""

    brokers: Sequence[Broker]

    @property
    def bootstrap(self) -> str:
        """The addresses of its brokers."""
        return ",".join(f"{LOOPBACK}:{broker.port}" for broker in self.brokers)

    @property
    def pids(self) -> list[int]:
        """The processes of its brokers."""
        return [broker.process.pid for broker in self.brokers if broker.process is not None]


@contextmanager
def running(
    directory: Path, *, nodes: int = 1, settings: Mapping[str, str | int] | None = None, heap: str = "1g"
) -> Iterator[Kafka]:
    """Brokers that are their own controllers, with these settings beside Kafka's defaults, gone afterwards.

    It yields when all of them serve. Topics have as many replicas as there are brokers, unless who makes one says so.
    """
    ports = free_ports(2 * nodes)
    voters = ",".join(f"{number}@{LOOPBACK}:{ports[nodes + number - 1]}" for number in range(1, nodes + 1))
    with ExitStack() as stack:
        brokers = []
        for number in range(1, nodes + 1):
            home = directory.resolve() / f"kafka-{number}"
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            stack.callback(shutil.rmtree, home / "data", ignore_errors=True)
            listeners = (
                f"PLAINTEXT://{LOOPBACK}:{ports[number - 1]},CONTROLLER://{LOOPBACK}:{ports[nodes + number - 1]}"
            )
            given = {
                "process.roles": "broker,controller",
                "node.id": number,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": listeners,
                "log.dirs": home / "data",
                "default.replication.factor": nodes,
                "offsets.topic.replication.factor": nodes,
                **SETTINGS,
                **(settings or {}),
            }
            file = home / SETTINGS_FILE
            file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
            _format(file, home / "log")
            broker = Broker(number, ports[number - 1], home, heap)
            stack.callback(broker.kill)
            broker.start()
            brokers.append(broker)
        for broker in brokers:
            broker.wait_until_it_serves()
        yield Kafka(brokers)


def _format(file: Path, log: Path) -> None:
    command = java("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", file)
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - as above
    if done.returncode != 0:
        log.write_text(done.stdout + done.stderr)
        raise KafkaError(f"the storage of a broker of Apache Kafka could not be made: {done.stderr.strip()[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Find ports of the loopback interface that nobody has."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
