"""What clients are told of this node's listeners: some of it is known at the start, some is written into a file later.

The file is for addresses that others give a node and may change while it runs, as Kubernetes does: a node port, a load
balancer. Each of its lines is `PROTOCOL/NAME=HOST:PORT`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from walrus_node.address import Address
from walrus_node.metadata.reports import Listener

log = logging.getLogger(__name__)

_BYTES_MAX = 64 * 1024


class AdvertisedAddresses:
    """The listeners as the metadata shall list them now."""

    def __init__(self, listeners: tuple[Listener, ...], awaited: tuple[Listener, ...], path: Path | None) -> None:
        """*awaited* are those whose addresses are in the file at *path*, once they are."""
        self._listeners = listeners
        self._awaited = awaited
        self._path = path
        self._content = b""
        self._told: Mapping[str, Address] = {}

    def now(self) -> tuple[Listener, ...]:
        """Look at the file again. One that cannot be understood changes nothing; one that is gone tells of nobody."""
        if self._path is None:
            return self._listeners
        content = _content(self._path)
        if content != self._content:
            self._content = content
            try:
                self._told = _parse(content)
            except ValueError as error:
                log.error("%s is not understood, and what it said before holds on: %s", self._path, error)
            else:
                told = ", ".join(f"{name} {address}" for name, address in self._told.items())
                log.info("clients are told: %s", told or "nothing")
        found = ((one, self._told.get(f"{one.protocol}/{one.name}")) for one in self._awaited)
        return (*self._listeners, *(replace(one, address=str(address)) for one, address in found if address))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX + 1)
    except OSError:
        return b""


def _parse(content: bytes) -> dict[str, Address]:
    if len(content) > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX} bytes")
    told = {}
    for line in content.decode().split():
        name, equals, address = line.partition("=")
        if not equals:
            raise ValueError(f"{line[:300]!r} is not PROTOCOL/NAME=HOST:PORT")
        told[name] = Address.parse(address)
    return told
