"""What can happen to the data of a node that does not run, or stands still: lost, damaged, rolled back."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chaos.stores import Place, read_store

FLIPS = 8
LOCK = "LOCK"


def lose(home: Path) -> None:
    """Removes everything that is in a data directory, and the directory."""
    shutil.rmtree(home)


def keep_metadata(home: Path, aside: Path) -> None:
    """Remembers the metadata of a node that stands still, or does not run, as it is now."""
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(home / "metadata", aside)


def roll_back_metadata(home: Path, aside: Path) -> None:
    """Puts back what `keep_metadata` remembered."""
    shutil.rmtree(home / "metadata")
    shutil.copytree(aside, home / "metadata")


def flip_bits(store: Path, seed: int, *, in_sealed: bool = True) -> list[str]:
    """Flips bits in sealed segments of a store, or in open ones; says where. None is flipped where there are none.

    In open ones they are in the first half, so that there are good records behind: else it is a torn tail.
    """
    draw = random.Random(seed)
    logs = [log for log in read_store(store).values() if log.is_sealed is in_sealed]
    places = [place for log in logs for place in log.places if place.length]
    if not in_sealed:
        places = [replace(place, length=place.length // 2) for place in places if place.length > 1]
    return [_flip(draw, draw.choice(places)) for _ in range(FLIPS if places else 0)]


def lose_end(store: Path) -> None:
    """The second half of what the journal of a store holds is zeros."""
    journal = max(path for path in store.glob("journal-*") if path.name.removeprefix("journal-").isdigit())
    content = journal.read_bytes()
    kept = len(content.rstrip(b"\0")) // 2
    with journal.open("r+b") as file:
        file.seek(kept)
        file.write(bytes(len(content) - kept))


def is_whole(store: Path) -> bool:
    """Whether every byte of every batch checks."""
    return not any(log.damaged for log in read_store(store).values())


@contextmanager
def unlocked(store: Path) -> Iterator[Path]:
    """The store of a node that stands still, for those who would respect its lock. A store takes no symbolic links."""
    with tempfile.TemporaryDirectory(dir=store.parent) as beside:
        for entry in store.iterdir():
            if entry.name != LOCK:
                (Path(beside) / entry.name).hardlink_to(entry)
        yield Path(beside)


def _flip(draw: random.Random, place: Place) -> str:
    position, bit = place.start + draw.randrange(place.length), draw.randrange(8)
    with place.path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    return f"{place.path.name}@{position}.{bit}"
