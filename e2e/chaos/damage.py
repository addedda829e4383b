"""What can happen to the data of a node that does not run, or stands still: lost, damaged, rolled back."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


def flip_bits(store: Path, seed: int) -> list[str]:
    """Flips bits in sealed segments of a store; says where. None is flipped where nothing is sealed."""
    draw = random.Random(seed)
    sealed = [log for log in read_store(store).values() if log.is_sealed]
    places = [place for log in sealed for place in log.places if place.length]
    return [_flip(draw, draw.choice(places)) for _ in range(FLIPS if places else 0)]


def is_whole(store: Path) -> bool:
    """Whether every byte of every batch checks."""
    return not any(log.damaged for log in read_store(store).values())


@contextmanager
def unlocked(store: Path) -> Iterator[Path]:
    """The store of a node that stands still, for those who would respect its lock."""
    with tempfile.TemporaryDirectory() as beside:
        for entry in store.iterdir():
            if entry.name != LOCK:
                (Path(beside) / entry.name).symlink_to(entry.resolve())
        yield Path(beside)


def _flip(draw: random.Random, place: Place) -> str:
    position, bit = place.start + draw.randrange(place.length), draw.randrange(8)
    with place.path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    return f"{place.path.name}@{position}.{bit}"
