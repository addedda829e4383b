"""An address, `host:port`: parsed where it enters, so that nothing behind meets one that cannot be dialled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_PORT_MAX = 65_535


@dataclass(frozen=True)
class Address:
    """Where to listen, or whom to ask. Port 0 is chosen by the system."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, port_min: int = 1) -> Address:
        """Read `host:port` or `[ipv6]:port`; raises `ValueError` with what is wrong. Resolves nothing."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not is_host(bare) or (":" in bare and bare == host):
            raise ValueError(f"{text[:300]!r} is not HOST:PORT, such as node-1:6000 or [::1]:6000")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not port_min <= int(port) <= _PORT_MAX:
            raise ValueError(f"{text[:300]!r} names no port from {port_min} to {_PORT_MAX}")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_host(text: str) -> bool:
    """Whether it can be the name or the ip of a host."""
    return _HOST.fullmatch(text) is not None


def with_ports(bound: Mapping[str, Address], told: Mapping[str, str]) -> dict[str, Address]:
    """Return the listeners with the ports that the system chose for some, *told* as `host:port`, or as "" where nobody
    knows yet how it is reached.
    """
    chosen = {name: int(address.rpartition(":")[2]) for name, address in told.items() if address}
    return {name: Address(address.host, chosen.get(name, address.port)) for name, address in bound.items()}
