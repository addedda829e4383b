"""Topics from which records go while faults are done: one keeps them for seconds (`expiring`), one keeps the last of
each key (`compacted`), one is deleted and made anew, often (`lives`). What may be gone of each is known.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from walrus_client import Client

from chaos import compacting, expiring, lives
from chaos.ages import Clocks
from chaos.client_threads import start
from chaos.compacted import Compacted
from chaos.expiring import Expiring
from chaos.gate import Gate
from chaos.lives import Lives


@dataclass
class Vanishing:
    """What became of the topics; `lives` is None where none is deleted."""

    clocks: Clocks
    expiring: Expiring
    compacted: Compacted
    lives: Lives | None
    failures: list[BaseException] = field(default_factory=list)

    def went(self) -> "Went":
        """How much went while faults were done."""
        return Went(self.expiring.expired, self.compacted.gone, None if self.lives is None else self.lives.ended)


@dataclass(frozen=True)
class Went:
    """Records that were too old, records that later ones stood for, and topics that were deleted; None: none is."""

    expired: int
    compacted: int
    deleted: int | None

    def __bool__(self) -> bool:
        """Whether there was something of each kind."""
        return self.expired > 0 and self.compacted > 0 and self.deleted != 0

    def __str__(self) -> str:
        return f"{self.expired} records too old, {self.compacted} stood for, {self.deleted or 0} topics deleted"


@contextmanager
def vanishing(bootstraps: Sequence[str], gate: Gate, *, again: bool) -> Iterator[Vanishing]:
    """Runs the clients of the topics while the block runs; with *again* also those of the one that is deleted.

    When it ends, all that was acknowledged was read or has gone, and what is to go has gone. Without *again* the
    metadata may lose commands, and nobody waits for the end of compactions.
    """
    clocks = Clocks(len(bootstraps))
    state = Vanishing(clocks, Expiring(clocks), Compacted(clocks), Lives() if again else None)
    over, ended = threading.Event(), threading.Event()
    first, last = bootstraps[0], bootstraps[-1]
    with Client(first) as client:
        client.create_topic(expiring.TOPIC, config=expiring.SETTINGS)
        client.create_topic(compacting.TOPIC, config=compacting.SETTINGS)
    failures = state.failures
    writing = [
        start(failures, expiring.produce, state.expiring, first, gate, over),
        start(failures, compacting.produce, state.compacted, bootstraps[len(bootstraps) // 2], gate, over),
        start(failures, expiring.look, state.expiring, bootstraps, over),
        start(failures, compacting.sweep, state.compacted, bootstraps, over),
    ]
    if state.lives is not None:
        writing.append(start(failures, lives.make_again, state.lives, last, gate, over))
        writing.append(start(failures, lives.look, state.lives, bootstraps, over))
    reading = [
        start(failures, expiring.follow, state.expiring, last, ended),
        start(failures, compacting.follow, state.compacted, last, ended),
    ]
    yield state  # what fails here is not kept waiting for clients of a cluster that does not answer
    over.set()
    for thread in writing:
        thread.join()
    ended.set()
    for thread in reading:
        thread.join()
    if failures:
        raise failures[0]
    _end(state, bootstraps)


def _end(state: Vanishing, bootstraps: Sequence[str]) -> None:
    expiring.check_empty(state.expiring, bootstraps)
    if state.lives is not None:
        lives.check_all_ended(state.lives, bootstraps)
        compacting.wait_until_at_rest(state.compacted, bootstraps[0])
    compacting.check_last(state.compacted, bootstraps)
