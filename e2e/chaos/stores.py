"""What lies on the disk of a node that does not run: `walrus-log verify` says where, the bytes are read beside it."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.batches import Batch, split

PAGE_BYTES = 4096  # length of a block's header; batches follow
STORAGE_CORE = Path(__file__).resolve().parents[2] / "storage_core"
BUILD_TIMEOUT_S, READ_TIMEOUT_S = 1_800, 300


class StoreError(Exception):
    """A store could not be read."""


@dataclass(frozen=True)
class Place:
    """Some bytes of a file."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True)
class StoredLog:
    """One copy of a segment: its log on this disk."""

    segment: str  # uuid
    start: int
    end: int
    is_sealed: bool
    places: tuple[Place, ...]
    damaged: tuple[tuple[int, int], ...]  # ranges of offsets whose bytes do not check

    def batches(self) -> Iterator[Batch]:
        """The batches below the end whose bytes check, in order of offset."""
        for place in self.places:
            with place.path.open("rb") as file:
                file.seek(place.start)
                content = file.read(place.length)
            for batch in split(content) if not self.damaged else _whole(content):
                hurt = any(start < batch.end_offset and batch.base_offset < end for start, end in self.damaged)
                if batch.base_offset < self.end and not hurt:
                    yield batch


def read_store(directory: Path) -> dict[str, StoredLog]:
    """All logs of a store that nobody has open, by segment."""
    seen = _said(directory, "verify")
    return {log["id"]: _stored(log, directory, seen["block_bytes"]) for log in seen["logs"]}


def list_store(directory: Path) -> set[str]:
    """The segments of which a store that nobody has open has bytes; its batches are not looked at."""
    return {log["id"] for log in _said(directory, "inspect")["logs"] if log["size_bytes"]}


@cache
def program() -> Path:
    """`walrus-log`: the one that CHAOS_WALRUS_LOG names, else it is built if need be."""
    if given := os.environ.get("CHAOS_WALRUS_LOG"):
        return Path(given)
    command = ["cargo", "build", "--locked", "--quiet", "--package", "walrus-log", "--bin", "walrus-log"]
    messages = ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(
        [*command, *messages], cwd=STORAGE_CORE, stdout=subprocess.PIPE, timeout=BUILD_TIMEOUT_S, check=False
    )
    built = [json.loads(line) for line in done.stdout.splitlines()]
    paths = [message["executable"] for message in built if message.get("executable")]
    if done.returncode != 0 or not paths:
        raise StoreError(f"{' '.join(command)} in {STORAGE_CORE} failed with exit code {done.returncode}")
    return Path(paths[-1])


def _said(directory: Path, verb: str) -> Any:
    command = [str(program()), verb, str(directory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT_S, check=False)
    if done.returncode not in (0, 1):  # 1: something is damaged, and named
        raise StoreError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _stored(log: dict[str, Any], directory: Path, block_bytes: int) -> StoredLog:
    places = tuple(
        Place(
            path := directory / block["path"],
            block["slot"] * slot_bytes(path, block_bytes) + PAGE_BYTES,
            block["data_bytes"],
        )
        for block in log["blocks"]
    )
    damaged = tuple((hurt["start"], hurt["end"]) for hurt in log["damaged"])
    return StoredLog(log["id"], log["start"], log["end"], log["sealed"], places, damaged)


def slot_bytes(path: Path, block_bytes: int) -> int:
    """The name of a file with smaller blocks says how small they are."""
    _, _, kibibytes = path.stem.partition("-")
    return int(kibibytes.removesuffix("k")) << 10 if kibibytes else block_bytes


def _whole(content: bytes) -> Iterator[Batch]:
    """The batches of a block with damage, as far as their lengths lead."""
    try:
        yield from split(content)
    except ValueError:
        return
