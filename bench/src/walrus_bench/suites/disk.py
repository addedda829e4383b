"""The disk under brokers, which answers some writes late while it takes back what a sample wrote."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

LOOK_S = 0.25
REST_S = 0.5  # behind the last of it: disks take space back in the background
PATIENCE_S = 15.0
TOLERANCE_BYTES = 512 << 20  # journals and files that are kept for the next block


@dataclass
class Disk:
    """Brokers delete topics behind their answer. `free` tells the bytes that are free on the disk."""

    free: Callable[[], int]
    pause: Callable[[float], None] = time.sleep
    rested: int = field(init=False)  # bytes that were free when the disk rested last

    def __post_init__(self) -> None:
        self.rested = self.free()

    @classmethod
    def under(cls, directory: Path) -> "Disk":
        """The disk of a directory."""
        return cls(partial(_free, directory))

    def rest(self) -> None:
        """Returns when the space of the samples before is free again, or after a while: a sample may leave something.

        Everything is synced then, since a file system tells its disk of free space with a commit of its journal only.
        """
        waited = 0.0
        while waited < PATIENCE_S and self.free() < self.rested - TOLERANCE_BYTES:
            self.pause(LOOK_S)
            waited += LOOK_S
        os.sync()
        self.pause(REST_S)
        self.rested = self.free()


def _free(directory: Path) -> int:
    return shutil.disk_usage(directory).free
