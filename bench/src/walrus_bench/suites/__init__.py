"""The suites: lists of phases. A phase sets something up and yields the subjects to measure in rounds."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from walrus_bench.sampling import Subject


@dataclass(frozen=True)
class Settings:
    """What every phase is told."""

    data_dir: Path  # on the disk to be measured; the phases make and delete what they need below it
    seconds: float  # how long each sample lasts
    peers: bool  # also measure the systems that we compare ourselves with
    rocksdb: bool  # also RocksDB, which takes long to build
    quick: bool  # shrinks what is set up; the figures are worth nothing


@dataclass(frozen=True)
class Prepared:
    """A phase that is set up: what to measure, and the processes that are ours beside our own children."""

    subjects: Sequence[Subject]
    pids: Sequence[int] = ()
    notes: Sequence[str] = field(default_factory=tuple)


Phase: TypeAlias = Callable[[Settings], AbstractContextManager[Prepared]]
