"""The clients: how the driver of each is started, and in which modes its users run it."""

import os
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
    """A client of Kafka. Its modes are those that its library has, the one that is its default first."""

    name: str
    package: str
    command: Sequence[str]
    modes: Sequence[Mode]
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    needs: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def is_there(self) -> bool:
        """Whether its driver was prepared."""
        return all(path.exists() for path in self.needs)


def cache() -> Path:
    """Return the folder of what `tools/setup compat` makes."""
    fallback = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walrus"
    return Path(os.environ.get("WALRUS_CACHE", fallback)) / "compat"


def _python(name: str, package: str, module: str, modes: Sequence[Mode]) -> Client:
    return Client(name, package, (sys.executable, "-m", f"walrus_compat.drivers.{module}"), modes)


def _java(version: str) -> Client:
    home, path = cache(), f"kafka-clients-{version}"
    classes = home / "classes" / path
    command = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{classes}:{home / 'jars' / path}/*", "Driver")
    return Client(f"Java {version[0]}", "kafka-clients", command, (IDEMPOTENT,), needs=(classes / "Driver.class",))


def _go(name: str, package: str, modes: Sequence[Mode]) -> Client:
    program = cache() / "bin" / "driver"
    return Client(name, package, (str(program), name), modes, needs=(program,))


def all_clients() -> list[Client]:
    """Return all clients, those that this machine has no driver for too."""
    return [
        _python("confluent-kafka", "confluent-kafka", "confluent", (PLAIN, IDEMPOTENT)),
        _java("4.4.0"),
        _java("3.9.2"),
        _go("sarama", "github.com/IBM/sarama", (PLAIN, IDEMPOTENT)),
        _go("franz-go", "github.com/twmb/franz-go", (IDEMPOTENT,)),
        _python("kafka-python", "kafka-python", "kafka_python", (IDEMPOTENT,)),
        _python("aiokafka", "aiokafka", "aio", (PLAIN, IDEMPOTENT)),
    ]
