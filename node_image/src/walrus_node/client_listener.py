"""A listener of clients: how its option is written, and what is known of it before it is open."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from walrus_node.address import Address

# The organisation of listeners that name none.
DEFAULT_ORG = "default"
PROTOCOLS = ("text", "grpc", "kafka")
FORM = "NAME=HOST:PORT[,org=ORG][,advertise=HOST:PORT|file][,admin=off]"

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_KEYS = ("org", "advertise", "admin")
_FILE = "file"


@dataclass(frozen=True)
class ClientListener:
    """Where to serve clients by one protocol, for which organisation, and what they are told of it."""

    # `text`, `grpc` or `kafka`.
    protocol: str
    # The same on all nodes: clients are told the addresses of the listeners that have the name of theirs.
    name: str
    bind: Address
    org: str = DEFAULT_ORG
    # None: the bound port at the host that others are told.
    advertise: Address | None = None
    # What clients are told is in the file of advertised addresses; until it is there, they are told nothing.
    is_told_by_file: bool = False
    # Whether clients may change topics, such as by naming one that there is not yet.
    admin: bool = True

    @property
    def key(self) -> str:
        """Its name among the addresses that the data plane tells."""
        is_default = self.protocol == self.name != "kafka"
        return self.protocol if is_default else self.long_name

    @property
    def long_name(self) -> str:
        """Its name with that of its protocol, as in the file of advertised addresses."""
        return f"{self.protocol}/{self.name}"


def parse_listeners(protocol: str, text: str) -> tuple[ClientListener, ...]:
    """Read listeners that are separated by semicolons; raises `ValueError` with what is wrong."""
    return tuple(_parse(protocol, part.strip()) for part in text.split(";"))


def twice(listeners: tuple[ClientListener, ...]) -> str | None:
    """The name of two listeners of one protocol, if there are such."""
    return next((name for name, times in Counter(one.long_name for one in listeners).items() if times > 1), None)


def _parse(protocol: str, text: str) -> ClientListener:
    place, *rest = text.split(",")
    match = re.fullmatch(rf"({_NAME})=(.+)", place)
    if match is None:
        raise ValueError(f"{text!r} is no listener: NAME=HOST:PORT is expected, such as outside=0.0.0.0:9093")
    options = dict(part.partition("=")[::2] for part in rest)
    if len(options) < len(rest):
        raise ValueError(f"{text!r} has an option twice")
    if unknown := sorted(options.keys() - set(_KEYS)):
        raise ValueError(
            f"{text!r} has options that a listener does not have ({', '.join(unknown)}): {', '.join(_KEYS)} are known"
        )
    org, advertise, admin = options.get("org", DEFAULT_ORG), options.get("advertise"), options.get("admin", "on")
    if not re.fullmatch(_NAME, org):
        raise ValueError(f"{org!r} is no name of an organisation")
    if admin not in ("on", "off"):
        raise ValueError(f"admin={admin} is neither on nor off")
    return ClientListener(
        protocol,
        match[1],
        Address.parse(match[2], port_min=0),
        org,
        Address.parse(advertise) if advertise not in (None, _FILE) else None,
        is_told_by_file=advertise == _FILE,
        admin=admin == "on",
    )
