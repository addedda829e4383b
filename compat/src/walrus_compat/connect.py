"""A worker of Kafka Connect: lines of a file become records of a topic, and these become lines of another file."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from walrus_compat import apache
from walrus_compat.clients import cache
from walrus_compat.feature import await_so, check
from walrus_compat.stage import Stage

VERSION = "4.3.1"  # the newest with a file source and sink
LINES = 100
ASK_S = 10.0


def jars() -> Path:
    """The folder of the jars that it does not share with Kafka."""
    return cache() / "jars" / f"connect-{VERSION}"


def files(stage: Stage) -> None:
    """The worker is killed in between, and goes on where it has committed: each line comes, at least once."""
    topic, folder = stage.topic("lines"), stage.directory / stage.name("connect")
    folder.mkdir()
    source, sink = folder / "source", folder / "sink"
    append(source, 0)
    with worker(stage, folder) as rest:
        make(rest, "source", "FileStreamSource", file=str(source), topic=topic)
        make(rest, "sink", "FileStreamSink", file=str(sink), topics=topic)
        await_so("the first lines", lambda: missing(sink, LINES) == [])
    append(source, LINES)
    with worker(stage, folder):
        await_so("all lines", lambda: missing(sink, 2 * LINES) == [])
    stored = [(record.value or b"").decode() for record in stage.log(topic)]
    check(set(stored) == set(lines(0, 2 * LINES)), "the topic has other lines")


def lines(begin: int, end: int) -> list[str]:
    """The lines of these numbers."""
    return [f"line {number}" for number in range(begin, end)]


def append(source: Path, begin: int) -> None:
    """Give the source some more lines."""
    with source.open("a") as file:
        file.writelines(f"{line}\n" for line in lines(begin, begin + LINES))


def missing(sink: Path, end: int) -> list[str]:
    """The lines that the sink has not got yet."""
    found = set(sink.read_text().splitlines()) if sink.exists() else set()
    return [line for line in lines(0, end) if line not in found]


@contextmanager
def worker(stage: Stage, folder: Path) -> Iterator[str]:
    """A worker that keeps what it knows in topics, as one of many would; it is killed in the end. Gives its address."""
    (port,) = apache.free_ports(1)
    address = f"http://{apache.LOOPBACK}:{port}"
    name = folder.name
    settings = {
        "bootstrap.servers": stage.bootstrap,
        "group.id": name,
        "listeners": address,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": 500,
        "plugin.discovery": "only_scan",
        **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("offset", "config", "status")},
    }
    file = folder / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = apache.java("org.apache.kafka.connect.cli.ConnectDistributed", file, heap="512m", before=[jars()])
    with (stage.directory / "connect.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - the arguments are our own
        try:
            wait_until_it_serves(process, address)
            yield address
        finally:
            process.kill()
            process.wait()


def wait_until_it_serves(process: "subprocess.Popen[bytes]", address: str) -> None:
    """Return when the worker answers, and has joined its group."""

    def answers() -> bool:
        check(process.poll() is None, f"the worker ended with {process.poll()}, see connect.log")
        try:
            ask(f"{address}/connectors")
        except OSError:
            return False
        return True

    await_so("the worker answers", answers)


def make(address: str, name: str, kind: str, **config: str) -> None:
    """Make a connector."""
    connector = {"connector.class": kind, "tasks.max": "1", **config}
    ask(f"{address}/connectors", {"name": name, "config": connector})


def ask(address: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the worker, or tell it."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})  # noqa: S310 - it is http
    with urllib.request.urlopen(request, timeout=ASK_S) as answer:  # noqa: S310 - as above
        return json.load(answer)
