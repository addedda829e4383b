"""Which process made an object. A forked child has the locks and connections of its parent, but none of the threads
that would let go of the one and read the other: what it asked of them would never end. So what holds either belongs to
the process that made it, and answers Forked at once in a child.
"""

import os
from concurrent.futures import Future
from typing import TypeVar

from walrus_client import errors

_forks = 0  # between this process and the one that loaded the program


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Origin:
    """The process that makes it."""

    def __init__(self) -> None:
        self._forks = _forks

    def is_here(self) -> bool:
        """Whether this is still that process, and no child that was forked since."""
        return self._forks == _forks

    def check(self) -> None:
        """Raises Forked in a child."""
        if self._forks != _forks:
            raise errors.Forked(
                "this client was made before the process was forked: make another one in the child, or start processes"
                " by spawn"
            )


Result = TypeVar("Result")


class ParentsFuture(Future[Result]):
    """A future whose result only the process that made it will hear of; waiting for it in a child raises Forked."""

    def __init__(self) -> None:
        super().__init__()
        self._origin = Origin()

    def result(self, timeout: float | None = None) -> Result:
        """The result, like `Future.result`; refused in a forked child."""
        self._origin.check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception, like `Future.exception`; refused in a forked child."""
        self._origin.check()
        return super().exception(timeout)
