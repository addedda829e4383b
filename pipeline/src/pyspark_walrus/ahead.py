"""Reading ahead: the next one comes while this one is used."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_END: Final = object()


def ahead(source: Iterator[T], *, count: int) -> Iterator[T]:
    """What `source` yields, of which a thread of its own has up to `count` ready.

    What `source` raises is raised where it would have been. Left early, nothing more is asked of it.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="walrus-ahead")
    try:
        coming = deque(thread.submit(next, source, _END) for _ in range(count))
        while (item := coming.popleft().result()) is not _END:
            coming.append(thread.submit(next, source, _END))
            yield item  # type: ignore[misc]  # it is no _END
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
