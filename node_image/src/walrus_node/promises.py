"""Whether a disk still knows what it has promised to the other nodes of its cluster.

A store whose journal lost its end has forgotten votes. Whoever starts on it as the same disk could vote a second time,
and undo what was acknowledged: it is refused before anything opens it, so each start finds the same.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import walrus_core

from walrus_node.files import DataRefusedError


def check_promises(directory: Path, disk: UUID) -> None:
    """Look at the store of a data directory; raises `DataRefusedError` where it has lost promises. Changes nothing."""
    store = directory / "log"
    if not store.exists():
        return
    try:
        lost = walrus_core.inspect_store(store)["recovery"]["lost_end"]
    except (walrus_core.WalrusError, OSError):
        return  # the data plane cannot open it either, and says why
    if lost is not None:
        raise DataRefusedError(
            f"the journal of {store} ends with record {lost['last_sequence']}, {lost['durable_sequence']} was durable: "
            "what this disk promised to other nodes is lost, and it must not vote again. To come back as another disk, "
            f"move {directory} aside, and start with --join and --replaces {disk}. Of the only node of a cluster, "
            f"`walrus log verify {store}` tells what is left, and the embedded engine reads it"
        )
