"""What the drivers for Python share: the spec, the records of its numbers, and the lines that they write."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Spec:
    """What a driver is told to do."""

    bootstrap: str = ""
    topic: str = ""
    producer: str = ""
    count: int = 0
    pace_ms: int = 0
    size: int = 0
    mixed: int = 0
    time_ms: int = 0
    codec: str = "none"
    acks: int = -1
    idempotent: int = 0
    bytes_max: int = 0
    keys: int = 0
    from_: str = "earliest"
    group: str = ""
    instance: str = ""
    cooperative: int = 0
    session_ms: int = 0

    @classmethod
    def parse(cls, arguments: list[str]) -> "Spec":
        """Parse arguments of the form `key=value`."""
        given = dict(argument.split("=", 1) for argument in arguments)
        numbers = {field.name for field in fields(cls) if field.type is int}
        names = {"from": "from_"}
        return cls(**{names.get(k, k): int(v) if k in numbers else v for k, v in given.items()})  # type: ignore[arg-type]

    @property
    def place(self) -> tuple[str, int]:
        """Where a reader begins: `earliest`, `latest`, `offset` or `time`, and the number of the latter two."""
        kind, _, number = self.from_.partition(":")
        return kind, int(number or 0)


@dataclass(frozen=True, slots=True)
class Record:
    """What is sent under a number; every client sends the same."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    time_ms: int | None


def record_of(spec: Spec, number: int) -> Record:
    """Make the record of a number. Mixed ones lack some keys and values, and have some headers."""
    value = f"{spec.producer} {number} ".ljust(spec.size, ".").encode()
    mixed = bool(spec.mixed)
    return Record(
        key=None if mixed and number % 3 == 0 else f"key {number % spec.keys if spec.keys else number}".encode(),
        value=None if mixed and number % 5 == 0 and number % 3 else value,  # some clients send no record without both
        headers=[("first", b"1"), ("second", b"2")] if mixed and number % 2 else [],
        time_ms=spec.time_ms + number if spec.time_ms else None,
    )


class Stop:
    """Whether the standard input has ended, by which the runner ends what has no count."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        os.read(sys.stdin.fileno(), 1)  # not through the buffer, whose lock the end of the program wants
        self._ended.set()

    @property
    def is_set(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Return when it has ended."""
        self._ended.wait()

    def numbers(self, spec: Spec) -> Iterator[int]:
        """Give the numbers of the records to send, at the spec's pace."""
        number = 0
        while not self.is_set and (spec.count == 0 or number < spec.count):
            yield number
            self._ended.wait(spec.pace_ms / 1000)
            number += 1


_writing = threading.Lock()


def tell(**event: object) -> None:
    """Write one line."""
    line = json.dumps({"at": time.time(), **event})
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def tell_sent(number: int, offset: int | None, error: object | None) -> None:
    """Tell what became of a record that was sent."""
    if error is None:
        tell(acked=number, offset=-1 if offset is None else offset)
    else:
        tell(failed=number, error=str(error) or type(error).__name__)


def tell_read(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes]],
    time_ms: int,
    partition: int = 0,
) -> None:
    """Tell a record that was read."""
    sized = {} if value is None else {"size": len(value)}
    told = [[name, content.decode()] for name, content in headers]
    tell(read=offset, partition=partition, key=_text(key), value=_text(value), headers=told, time_ms=time_ms, **sized)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content[:64].decode()


def tell_committed(read: Mapping[int, int]) -> None:
    """Tell that what was read is committed: the next offset of each partition."""
    for partition, offset in read.items():
        tell(committed=offset, partition=partition)


def tell_step(step: str, found: object = None) -> None:
    """Tell what came of a step of an admin."""
    tell(step=step, found=found)


Command = Callable[[Spec, Stop], None]


def main(about: Mapping[str, str], *commands: Command) -> None:
    """Run the command of the command line; `about` are the versions of packages."""
    name, spec, stop = sys.argv[1], Spec.parse(sys.argv[2:]), Stop()
    if name == "about":
        tell(versions=about)
    else:
        {command.__name__: command for command in commands}[name](spec, stop)
    tell(done=True)
