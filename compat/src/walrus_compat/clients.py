"""The clients: how the driver of each is started, and in which modes its users run it."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mode:
    """A way in which a producer is set up."""

    name: str
    idempotent: bool


PLAIN, IDEMPOTENT = Mode("plain", idempotent=False), Mode("idempotent", idempotent=True)


@dataclass(frozen=True, slots=True)
class Client:
    """A client of Kafka. Its modes are those that its library has, the one that is its default first.

    `lacks` names features that it does not have, and what it cannot send with a record: `headers`, `time_ms`.
    `rereads` says that its only readers are members of groups, which begin at the last commit when they had to stop.
    `takes_along` says that its members commit by themselves what they take, and that one that ends, whether it is asked
    to or killed, may have committed a record that it has not told yet.
    """

    name: str
    package: str
    command: Sequence[str]
    modes: Sequence[Mode]
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    needs: Sequence[Path] = ()
    lacks: frozenset[str] = frozenset()
    rereads: bool = False
    takes_along: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def is_there(self) -> bool:
        """Whether its driver was prepared."""
        return all(path.exists() for path in self.needs)


def cache() -> Path:
    """Return the folder of what `tools/setup compat` makes."""
    fallback = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walrus"
    return Path(os.environ.get("WALRUS_CACHE", fallback)) / "compat"


def _python(name: str, module: str, modes: Sequence[Mode], *lacks: str) -> Client:
    command = (sys.executable, "-m", f"walrus_compat.drivers.{module}")
    return Client(name, name, command, modes, lacks=frozenset(lacks))


def _kcat() -> Client:
    command = (sys.executable, "-m", "walrus_compat.drivers.kcat")
    program = Path(shutil.which("kcat") or "/usr/bin/kcat")
    lacks = frozenset({"headers", "time_ms", "cooperative", "admin"})
    # It commits what it has polled, and prints it only if no signal has come meanwhile (`consume_cb` in its kcat.c).
    return Client("kcat", "kcat", command, (PLAIN, IDEMPOTENT), needs=(program,), lacks=lacks, takes_along=True)


def _node() -> Client:
    home = cache() / "node"
    command, modules = ("node", str(home / "driver.js")), home / "node_modules" / "kafkajs"
    lacks = frozenset({"static members", "cooperative"})
    return Client("kafkajs", "kafkajs", command, (PLAIN, IDEMPOTENT), ("none", "gzip"), (modules,), lacks, rereads=True)


def _java(version: str) -> Client:
    home, path = cache(), f"kafka-clients-{version}"
    classes = home / "classes" / path
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # several start at a time, for a minute each
    command = ("java", *options, "-cp", f"{classes}:{home / 'jars' / path}/*", "Driver")
    return Client(f"Java {version[0]}", "kafka-clients", command, (IDEMPOTENT,), needs=(classes / "Driver.class",))


def _go(name: str, package: str, modes: Sequence[Mode], *lacks: str) -> Client:
    program = cache() / "bin" / "driver"
    return Client(name, package, (str(program), name), modes, needs=(program,), lacks=frozenset(lacks))


def all_clients() -> list[Client]:
    """Return all clients, those that this machine has no driver for too."""
    return [
        _python("confluent-kafka", "confluent", (PLAIN, IDEMPOTENT)),
        _kcat(),
        _java("4.4.0"),
        _java("3.9.2"),
        _go("sarama", "github.com/IBM/sarama", (PLAIN, IDEMPOTENT), "cooperative"),
        _go("franz-go", "github.com/twmb/franz-go", (IDEMPOTENT,)),
        _python("kafka-python", "kafka_python", (IDEMPOTENT,)),
        _python("aiokafka", "aio", (PLAIN, IDEMPOTENT), "cooperative", "delete group"),
        _node(),
    ]
