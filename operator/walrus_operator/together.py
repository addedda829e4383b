"""Work that is done side by side, so many pieces at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(do: Callable[[T], Awaitable[None]], pieces: Iterable[T], at_once: int) -> None:
    """Do all of it; what one piece raises holds up no other, and is raised in the end."""
    gate = asyncio.Semaphore(at_once)

    async def in_turn(piece: T) -> None:
        async with gate:
            await do(piece)

    for result in await asyncio.gather(*map(in_turn, pieces), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
