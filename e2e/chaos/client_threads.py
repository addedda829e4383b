"""Threads of clients whose failures are remembered, and steps that are tried until they are taken."""

import threading
from collections.abc import Callable

from walrus_client import errors


def start(failures: list[BaseException], target: Callable[..., None], *arguments: object) -> threading.Thread:
    """Runs *target* in a thread of its own; what it raises is added to *failures*."""

    def guarded() -> None:
        try:
            target(*arguments)
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def until_done(step: Callable[[], object], *, done: type[errors.WalrusError] | None = None) -> None:
    """Tries a step until it is taken; an error of the kind *done* says that it was taken before."""
    while True:
        try:
            step()
            return
        except (errors.RetryableError, errors.OutcomeUnknown):  # the client has tried for long, and tries again
            continue
        except errors.WalrusError as refusal:
            if done is None or not isinstance(refusal, done):
                raise
            return
