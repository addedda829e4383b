"""What a program is that is not a client library: it uses one, and is run as it is, with its own settings."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from walrus_compat import apache
from walrus_compat.clients import Client, cache
from walrus_compat.feature import check
from walrus_compat.stage import Stage

RUN_S = 120.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program: `run` raises `Broken` with what is not as it should be."""

    name: str
    version: str
    what: str
    run: Callable[[Stage], None]
    needs: Sequence[Path] = field(default_factory=tuple)
    is_quick: bool = False

    def is_there(self) -> bool:
        """Whether what it needs was prepared."""
        return apache.is_there() and all(path.exists() for path in self.needs)


def classes() -> Path:
    """The folder of our own programs that need more of Apache Kafka than its client."""
    return cache() / "classes" / f"kafka-{apache.VERSION}"


def ours(main: str) -> Client:
    """One of our own programs for Java, to be run as a driver."""
    path = f"{classes()}:{apache.jars()}/*"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", quiet, "-cp", path, main)
    return Client(main, "", command, ())


def told(stage: Stage, main: str, *arguments: str | Path, sent: str = "") -> str:
    """Run a tool of Apache Kafka to its end, and return what it writes."""
    command = apache.java(main, *arguments, options=("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"))
    done = subprocess.run(  # noqa: S603 - the arguments are our own
        command, input=sent, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    name = main.rpartition(".")[2]
    with (stage.directory / "tools.log").open("a") as log:
        log.write(f"{name} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}\n")
    check(done.returncode == 0, f"{name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
