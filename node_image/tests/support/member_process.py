"""A member in a process of its own, to be killed: one line in, `write NAME` or `look NAME`, one line out.

`applied NAME PLACE`, `looked NAME WRITES...` (a linearizable read) or `unknown NAME`.
"""

import sys
import threading
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from ledger import Ledger, entry
from walrus_node.metadata.journal import Owner
from walrus_node.metadata.raft import Compaction
from walrus_node.metadata.raft_store import Place, RaftStore
from walrus_node.metadata.store import Applied
from walrus_node.metadata.transport import listen

# Threads share the pipe: unguarded, `sys.stdout` mixes their lines up and loses some.
_saying = threading.Lock()


def main(directory: str, cluster: str, disk: str, port: str) -> None:
    owner = Owner(UUID(cluster), UUID(disk))
    place = Place(Path(directory), owner, uuid4(), f"127.0.0.1:{port}")
    compaction = Compaction(entries=200, entries_kept=20)
    store = RaftStore(place, Ledger(), listen("127.0.0.1", int(port)), compaction=compaction)
    store.start()
    say("started")
    for line in sys.stdin:
        command, _, name = line.strip().partition(" ")
        if command == "read":
            say(" ".join(["read", *store.read()]))
        else:
            threading.Thread(target=answer, args=(store, command, name), daemon=True).start()


def answer(store: RaftStore[tuple[str, ...]], command: str, name: str) -> None:
    outcome = (store.barrier if command == "look" else partial(store.propose, entry(name)))(timeout=2.0).result()
    if not isinstance(outcome, Applied):
        line = f"unknown {name}"
    elif command == "look":
        line = " ".join(["looked", name, *store.read()])
    else:
        line = f"applied {name} {outcome.answer}"
    say(line)


def say(line: str) -> None:
    with _saying:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
