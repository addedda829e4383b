"""The ports of HTTP and of the admin service: Rust accepts for both, with its limits, and passes connections on.

Their servers know no such limits, and listen on UNIX sockets in a folder that nobody else can open. A path of a socket
has 107 bytes at most, and a data directory may lie deeper: the paths go by a descriptor of the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import walrus_core

from walrus_node.address import Address

_PROTOCOLS = {"http": "http1", "admin": "http2"}


class Front:
    """First the servers listen on `socket`, then `listen` opens their ports."""

    def __init__(self, folder: Path) -> None:
        """Make the folder of the sockets; raises `OSError`."""
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._opened = ExitStack()
        self._opened.callback(os.close, self._folder)

    def socket(self, name: str) -> str:
        """Where the server of a port listens, `http` or `admin`. Only this process can use the path."""
        return f"/proc/self/fd/{self._folder}/{name}"

    async def listen(self, addresses: Mapping[str, Address], limits: Mapping[str, object]) -> dict[str, Address]:
        """Open the ports; returns where, raises `walrus_core.AddressInUse` and `OSError`."""
        ports = {
            name: {"address": str(address), "socket": self.socket(name), "protocol": _PROTOCOLS[name]}
            for name, address in addresses.items()
        }
        listening = await asyncio.to_thread(walrus_core.Front, json.dumps({"ports": ports, **limits}))
        self._opened.callback(listening.stop)
        bound = listening.addresses()
        return {name: Address(address.host, int(bound[name].rpartition(":")[2])) for name, address in addresses.items()}

    def stop(self) -> None:
        """Close the ports and all their connections."""
        self._opened.close()
