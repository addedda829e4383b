"""The node's options: flags first, then environment variables, then defaults. Checked here, once."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from walrus_node import __version__
from walrus_node.address import Address, is_host
from walrus_node.client_listener import FORM, PROTOCOLS, ClientListener, parse_listeners, twice

NODE_ID_MAX = 2**31 - 1
# The listener of Kafka's protocol that a node has without being told, and its port.
KAFKA = "kafka"
KAFKA_PORT = 9092
FRAME_BYTES_LIMIT = 16 * 1024 * 1024
MEMORY_BUDGET_MIN = 32 * 1024 * 1024

_BYTE_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_MS_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LOOPBACK = "127.0.0.1"
# `walrus` knows WALRUS_BOOTSTRAP as the address of a cluster; and founding, or giving up a disk, is said once.
_NOT_FROM_ENVIRONMENT = {"help", "version", "bootstrap", "replaces"}
_OTHER_NAMES = {
    "data_dir": ("RAFKA_DATA_DIR",),
    "segment_entries_max": ("WALRUS_MAX_SEGMENT_ENTRIES",),
    "log_level": ("RUST_LOG",),
    "otlp_endpoint": ("OTEL_EXPORTER_OTLP_ENDPOINT",),
}
# Share of appends and reads of which spans are made, where a collector is given.
_SPANS_SHARE = 1.0
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
_RUST_LEVELS = {"error", "warn", "info", "debug", "trace", "off"}


@dataclass(frozen=True)
class Limits:
    """What strangers can make each listener hold, as the data plane names it."""

    connections_max: int
    connections_per_address_max: int
    first_byte_ms: int
    header_ms: int
    idle_ms: int
    text_idle_ms: int

    def options(self) -> dict[str, object]:
        """The limits as the front and the data plane take them."""
        patience = asdict(self)
        caps = {name: patience.pop(name) for name in ("connections_max", "connections_per_address_max")}
        return {**caps, "patience": patience}


@dataclass(frozen=True)
class Config:
    """What the flags said. Hosts are those to bind; `advertised` says what others are told."""

    node_id: int | None
    node_name: str
    # What fails at once with other nodes; empty: nobody says it.
    zone: str
    data_dir: Path
    raft: Address
    text: Address
    grpc: Address
    peer: Address
    http: Address
    admin: Address
    # Those of clients, without the two of text and gRPC that every node has, unless the options say more of them.
    listeners: tuple[ClientListener, ...]
    advertise_host: str | None
    # What clients are told of listeners that say so.
    advertised_file: Path | None
    raft_advertise_host: str | None
    # Each may be a name with many addresses.
    join: tuple[Address, ...]
    bootstrap: bool
    # Among so many nodes at least, with seeds.
    bootstrap_nodes: int
    # A disk that is gone, and whose place this one takes when it joins.
    replaces: UUID | None
    # How a cluster that this node founds replicates its segments.
    replication_factor: int
    write_quorum: int
    backend: str
    fsync: str
    segment_entries_max: int
    segment_bytes_max: int
    # 0: never by age.
    segment_age_ms_max: int
    segment_age_ms_min: int
    monitor_check_ms: int
    auto_create_topics: bool
    frame_bytes_max: int
    limits: Limits
    # None: a quarter of the memory that the process may use.
    memory_budget_bytes: int | None
    # Whether commands of a newer level are used as soon as all members know them; else once somebody says so.
    finalizes: bool
    # 0: a node that stops hands nothing over.
    hand_over_ms: int
    secret_file: Path | None
    # None: spans are sent nowhere.
    otlp_endpoint: str | None
    otlp_share: float
    log_level: str
    log_file: Path | None
    test_controls: bool
    # For tests of other versions: what they speak, and up to which level they know commands of the metadata.
    test_wire: tuple[int, int] | None
    test_level: int | None

    def advertised(self, bound: Address, host: str | None = None) -> Address:
        """How others reach a listener, by *host* if it is given: a wildcard is no address."""
        host = host or self.advertise_host or (socket.gethostname() if is_wildcard(bound.host) else bound.host)
        return Address(host, bound.port)


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """Read the options; on a wrong one prints what is wrong and exits with code 2."""
    parser = _parser()
    flags = parser.parse_args([*_from_environment(parser, environment, arguments), *arguments])
    join = tuple(address for addresses in flags.join or () for address in addresses)
    factor = flags.replication_factor
    write_quorum = flags.write_quorum or factor // 2 + 1
    if write_quorum > factor:
        parser.error(f"--write-quorum {write_quorum} is above --replication-factor {factor}")
    names = ("raft", "client", "grpc", "peer", "http", "admin", "kafka")
    chosen = [port for name in names if (port := getattr(flags, f"{name}_port"))]
    if len(set(chosen)) < len(chosen):
        parser.error(f"two of {', '.join(f'--{name}-port' for name in names)} are the same")
    given = (getattr(flags, f"{protocol}_listener") or () for protocol in PROTOCOLS)
    listeners = tuple(listener for of_one in given for several in of_one for listener in several)
    if name := twice(listeners):
        parser.error(f"there are two listeners {name}")
    if flags.advertised_file is None and any(listener.is_told_by_file for listener in listeners):
        parser.error("advertise=file needs --advertised-file")
    if not flags.test_controls and (flags.test_wire or flags.test_level):
        parser.error("--test-wire and --test-level are for tests: they need --test-controls")
    bind_host = flags.bind_host or _LOOPBACK
    raft_host, client_host = flags.raft_host or bind_host, flags.client_host or bind_host
    admin_host = flags.admin_host or bind_host
    if flags.secret_file is None and (why := _why_open(raft_host, admin_host)):
        parser.error(why)
    node_name = flags.node_name or socket.gethostname()
    # Whoever came from the original may serve its protocol at Kafka's port, and then has not asked for this listener.
    kafka_port = flags.kafka_port if flags.kafka_port is not None or KAFKA_PORT in chosen else KAFKA_PORT
    by_key = {listener.key: listener for listener in listeners}
    if f"{KAFKA}/{KAFKA}" not in by_key and kafka_port is not None:
        listeners = (ClientListener(KAFKA, KAFKA, Address(client_host, kafka_port)), *listeners)
    return Config(
        node_id=flags.node_id,
        node_name=node_name,
        zone=flags.zone or "",
        data_dir=flags.data_dir,
        raft=Address(raft_host, flags.raft_port),
        text=by_key["text"].bind if "text" in by_key else Address(client_host, flags.client_port),
        grpc=by_key["grpc"].bind if "grpc" in by_key else Address(client_host, flags.grpc_port),
        peer=Address(raft_host, flags.peer_port),
        http=Address(client_host, flags.http_port),
        admin=Address(admin_host, flags.admin_port),
        listeners=listeners,
        advertised_file=flags.advertised_file,
        advertise_host=flags.advertise_host or flags.raft_advertise_host,
        raft_advertise_host=flags.raft_advertise_host or flags.advertise_host,
        join=join,
        replaces=flags.replaces,
        bootstrap=flags.bootstrap or flags.bootstrap_name == node_name,
        bootstrap_nodes=flags.bootstrap_nodes,
        replication_factor=flags.replication_factor,
        write_quorum=write_quorum,
        backend=flags.backend,
        fsync=flags.fsync,
        segment_entries_max=flags.segment_entries_max,
        segment_bytes_max=flags.segment_bytes_max,
        segment_age_ms_max=flags.segment_age_max,
        segment_age_ms_min=flags.segment_age_min,
        monitor_check_ms=flags.monitor_check_ms,
        auto_create_topics=not flags.no_auto_create_topics,
        frame_bytes_max=flags.frame_bytes_max,
        limits=Limits(
            connections_max=flags.connections_max,
            connections_per_address_max=flags.connections_per_address_max,
            first_byte_ms=flags.first_byte_timeout,
            header_ms=flags.header_timeout,
            idle_ms=flags.idle_timeout,
            text_idle_ms=flags.text_idle_timeout,
        ),
        memory_budget_bytes=flags.memory_budget,
        finalizes=flags.finalize == "auto",
        hand_over_ms=flags.hand_over_timeout,
        secret_file=flags.secret_file,
        otlp_endpoint=flags.otlp_endpoint,
        otlp_share=flags.otlp_share,
        log_level=flags.log_level,
        log_file=flags.log_file,
        test_controls=flags.test_controls,
        test_wire=flags.test_wire,
        test_level=flags.test_level,
    )


def _why_open(raft_host: str, admin_host: str) -> str | None:
    """Which listeners of nodes and operators strangers would reach, where nobody has to prove anything."""
    hosts = {"--raft-port": raft_host, "--peer-port": raft_host, "--admin-port": admin_host}
    reached = [f"{flag} on {host}" for flag, host in hosts.items() if not is_loopback(host)]
    if not reached:
        return None
    return (
        f"strangers would reach {', '.join(reached)}, and could vote, store and change everything: give all nodes of "
        "the cluster the same --secret-file, or bind these to 127.0.0.1 with --raft-host and --admin-host"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="walrus-node",
        description="A Walrus broker node.",
        epilog="Each option but --bootstrap and --replaces has an environment variable, such as WALRUS_DATA_DIR for "
        "--data-dir; options win. A node that was in a cluster goes back into it, whatever --bootstrap, "
        "--bootstrap-name and --join say.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"walrus-node {__version__}")
    add("--node-id", type=_number(1, NODE_ID_MAX), metavar="N", help="wanted id; another one is given if it is taken")
    add("--node-name", type=_name, metavar="NAME", help="what its operator calls it; default: the host's name")
    add("--zone", type=_zone, metavar="ZONE", help="where it is; copies and voters are spread over zones")
    add("--data-dir", type=Path, default=Path("data"), help="[also RAFKA_DATA_DIR]")
    add(
        "--bootstrap",
        action="store_true",
        help="found a cluster; with --join only if a majority of the nodes there, this one included, is empty and none "
        "is in a cluster, else enter theirs; harmless where the disk is in one already",
    )
    add("--bootstrap-name", type=_name, metavar="NAME", help="--bootstrap for the node of this name")
    add(
        "--bootstrap-nodes",
        type=_number(1, NODE_ID_MAX),
        metavar="N",
        default=1,
        help="with --join: of how many nodes, this one included, a majority must be empty before a cluster is founded, "
        "also while the name that --join gives has fewer addresses",
    )
    add(
        "--replaces",
        type=_uuid,
        metavar="UUID",
        help="the disk that this empty one comes in place of: it is gone for good, and so is what it promised",
    )
    add(
        "--replication-factor",
        default=1,
        type=_number(1, 7),
        metavar="N",
        help="replicas of each segment, in a cluster that is founded here",
    )
    add(
        "--write-quorum",
        type=_number(1, 7),
        metavar="N",
        help="replicas that have a record on their disks before it is acknowledged; default: the majority",
    )
    add(
        "--join",
        action="append",
        type=_addresses,
        metavar="HOST:RAFT_PORT",
        help="enter the cluster of the nodes there, at any address of the name; repeat it or separate by commas",
    )
    add("--bind-host", type=_host, metavar="HOST", help=f"bind all listeners here; default: {_LOOPBACK}")
    add("--advertise-host", type=_host, metavar="HOST", help="host that others are told; default: the bound one")
    add("--raft-host", type=_host, metavar="HOST", help="bind metadata and peer transports here, not to --bind-host")
    add("--raft-port", default=6000, type=_port, help="metadata")
    add("--peer-port", default=6001, type=_port, help="other brokers")
    add("--raft-advertise-host", type=_host, metavar="HOST", help="the same for metadata; default: --advertise-host")
    add("--client-host", type=_host, metavar="HOST", help="bind the listeners of clients here, not to --bind-host")
    add("--client-port", "--port", default=8080, type=_port, help="text protocol")
    add("--grpc-port", default=9090, type=_port, help="gRPC")
    add("--kafka-port", type=_port, metavar="PORT", help=f"Kafka's protocol; default: {KAFKA_PORT}")
    for protocol, port in zip(PROTOCOLS, ("--client-port", "--grpc-port", "--kafka-port"), strict=True):
        add(
            f"--{protocol}-listener",
            action="append",
            type=_listeners(protocol),
            metavar=FORM,
            help=f"one more listener of {protocol}, whose clients are of that organisation, and are told the addresses "
            "of this name on all nodes; admin=off: they change no topics; repeat it or separate by semicolons; one of "
            f"the name {protocol} takes the place of {port}",
        )
    add(
        "--advertised-file",
        type=Path,
        metavar="PATH",
        help="addresses that clients of listeners with advertise=file are told, each a line PROTOCOL/NAME=HOST:PORT; "
        "read anew when it changes",
    )
    add("--http-port", default=8088, type=_port, help="health, metrics, status")
    add("--admin-host", type=_host, metavar="HOST", help="bind the admin service here, not to --bind-host")
    add("--admin-port", default=9091, type=_port, help="admin service (gRPC)")
    add(
        "--secret-file",
        type=Path,
        metavar="PATH",
        help="secrets that the cluster's nodes share, one a line: the first is used, all are taken; without it the "
        "metadata, peer and admin listeners are on loopback only",
    )
    backends = ("auto", "mmap", "direct", "io_uring")
    add("--backend", default="auto", choices=backends, help="[WALRUS_DISABLE_IO_URING: mmap]")
    add("--fsync", default="each", type=_fsync, metavar="each|never|<n>ms", help="when records become durable")
    add(
        "--segment-entries-max",
        default=1_000_000,
        type=_number(1, 2**40),
        metavar="N",
        help="roll a segment at so many records [also WALRUS_MAX_SEGMENT_ENTRIES]",
    )
    add("--segment-bytes-max", default="1GiB", type=_size, metavar="BYTES", help="roll at so many bytes, e.g. 512MiB")
    add(
        "--segment-age-max",
        default="0",
        type=_duration,
        metavar="DURATION",
        help="roll at this age, e.g. 12h; 0: never",
    )
    add(
        "--segment-age-min",
        default="1s",
        type=_duration,
        metavar="DURATION",
        help="a younger segment is not rolled for its size or age; 0: it is",
    )
    add(
        "--monitor-check-ms",
        default=10_000,
        type=_number(10, 86_400_000),
        metavar="MS",
        help="how often open segments are looked at",
    )
    add("--no-auto-create-topics", action="store_true", help="refuse appends to unknown topics")
    add(
        "--frame-bytes-max",
        default=65_536,
        type=_number(1, FRAME_BYTES_LIMIT),
        metavar="BYTES",
        help="longest request of the text protocol",
    )
    connections = _number(1, 2**31 - 1)
    add("--connections-max", default=20_000, type=connections, metavar="N", help="connections of a listener at a time")
    add(
        "--connections-per-address-max", default=20_000, type=connections, metavar="N", help="the same from one address"
    )
    for flag, default, silence in (
        ("--first-byte-timeout", "60s", "how long a connection may say nothing at first"),
        ("--header-timeout", "5s", "from its first byte to the header of its protocol"),
        ("--idle-timeout", "10m", "how long it may be silent later, of gRPC and HTTP"),
        ("--text-idle-timeout", "1h", "the same between two requests of the text protocol"),
    ):
        add(flag, default=default, type=_timeout, metavar="DURATION", help=silence)
    add(
        "--memory-budget",
        type=_budget,
        metavar="BYTES",
        help="requests and answers that are held at a time, at least 32MiB; default: a quarter of the memory",
    )
    add(
        "--hand-over-timeout",
        default="10s",
        type=_duration,
        metavar="DURATION",
        help="how long SIGTERM may wait until other nodes lead what this one led; 0: not at all",
    )
    add(
        "--finalize",
        default="auto",
        choices=("auto", "manual"),
        help="when what a new release brought to the metadata is used: once all nodes know it, or not before `walrus "
        "cluster finalize` says so; until then nodes may go back to the release before",
    )
    add(
        "--otlp-endpoint",
        type=_collector,
        metavar="http://HOST:PORT",
        help="send spans of appends and reads to this collector, by OTLP over gRPC [also OTEL_EXPORTER_OTLP_ENDPOINT]",
    )
    add(
        "--otlp-share",
        default=_SPANS_SHARE,
        type=_share,
        metavar="SHARE",
        help="share of appends and reads of which spans are made, 0 to 1",
    )
    add(
        "--log-level",
        default="info",
        type=_log_level,
        metavar="LEVEL",
        help="error, warn, info, debug, trace [also RUST_LOG]",
    )
    add("--log-file", type=Path, metavar="PATH", help="append the log to this file instead of standard output")
    add("--test-controls", action="store_true", help="open the controls that only tests use")
    add("--test-wire", type=_versions, metavar="OLDEST-NEWEST", help=argparse.SUPPRESS)
    add("--test-level", type=_number(1, 1_000), help=argparse.SUPPRESS)
    return parser


def _from_environment(
    parser: argparse.ArgumentParser, environment: Mapping[str, str], arguments: Sequence[str]
) -> list[str]:
    """Environment variables as flags in front of the real ones, which win. An empty one is none."""
    flags = ["--backend=mmap"] if "WALRUS_DISABLE_IO_URING" in environment else []
    for action in parser._actions:
        flag = action.option_strings[0]
        if action.dest in _NOT_FROM_ENVIRONMENT:
            continue
        names = (f"WALRUS_{action.dest.upper()}", *_OTHER_NAMES.get(action.dest, ()))
        value = next((environment[name] for name in names if environment.get(name)), None)
        # Kubernetes tells of a service that happens to be called walrus-client as WALRUS_CLIENT_PORT=tcp://...
        if value is None or value.startswith("tcp://"):
            continue
        if action.nargs == 0:
            flags += [flag] if _is_true(parser, names[0], value) else []
        elif flag != "--join" or not any(given.partition("=")[0] == flag for given in arguments):
            flags.append(f"{flag}={value}")  # any second flag but --join replaces the first; --join adds to it
    return flags


def _is_true(parser: argparse.ArgumentParser, name: str, value: str) -> bool:
    if value.lower() not in _TRUE | _FALSE:
        parser.error(f"{name}: {value!r} is neither true nor false")
    return value.lower() in _TRUE


def is_wildcard(host: str) -> bool:
    """Whether a listener bound there is reached at all addresses of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a listener bound there is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse(message: str) -> NoReturn:
    raise argparse.ArgumentTypeError(message)


def _number(least: int, most: int) -> type[int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"\d{1,15}", text) or not least <= int(text) <= most:
            _refuse(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return number  # type: ignore[return-value] # argparse takes any callable


def _port(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text) or int(text) > 65_535:
        _refuse(f"{text!r} is no port: 0 (chosen by the system) to 65535")
    return int(text)


def _host(text: str) -> str:
    if not is_host(text):
        _refuse(f"{text!r} is no host name or address")
    return text


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        _refuse(f"{text!r} is no UUID of a disk, as `walrus cluster nodes` shows them")


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text):
        _refuse(f"{text!r} is no name: 1 to 253 characters of [A-Za-z0-9._-]")
    return text


def _zone(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        _refuse(f"{text!r} is no zone: 1 to 63 characters of [A-Za-z0-9._-], the first one a letter or digit")
    return text


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(_address(part.strip()) for part in text.split(","))


def _address(text: str, *, port_min: int = 1) -> Address:
    try:
        return Address.parse(text, port_min=port_min)
    except ValueError as wrong:
        _refuse(str(wrong))


def _listeners(protocol: str) -> Callable[[str], tuple[ClientListener, ...]]:
    def listeners(text: str) -> tuple[ClientListener, ...]:
        try:
            return parse_listeners(protocol, text)
        except ValueError as wrong:
            _refuse(str(wrong))

    return listeners


def _versions(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})-(\d{1,6})", text)
    if match is None or int(match[1]) > int(match[2]):
        _refuse(f"{text!r} are no versions, oldest and newest, such as 1-2")
    return int(match[1]), int(match[2])


def _fsync(text: str) -> str:
    if text not in ("each", "never") and not re.fullmatch(r"[1-9]\d{0,8}ms", text):
        _refuse(f"{text!r} is not each, never or <n>ms")
    return text


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})\s*([A-Za-z]*)", text)
    if match is None or match[2].lower() not in _BYTE_UNITS or int(match[1]) == 0:
        _refuse(f"{text!r} is no size: a number of bytes, or with KiB, MiB, GiB, TiB")
    return int(match[1]) * _BYTE_UNITS[match[2].lower()]


def _duration(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text)
    if match is None and text != "0":
        _refuse(f"{text!r} is no duration: 0, or a number with ms, s, m, h or d")
    return int(match[1]) * _MS_UNITS[match[2]] if match else 0


def _timeout(text: str) -> int:
    ms = _duration(text)
    return ms if ms > 0 else _refuse(f"{text!r} is too short: at least 1ms")


def _budget(text: str) -> int:
    size = _size(text)
    return size if size >= MEMORY_BUDGET_MIN else _refuse(f"{text!r} is too small: at least 32MiB")


def _collector(text: str) -> str:
    if not text.startswith("http://"):
        _refuse(f"{text!r} is not http://HOST:PORT")
    _address(text.removeprefix("http://").removesuffix("/"))
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        _refuse(f"{text!r} is no number")
    return share if 0 <= share <= 1 else _refuse(f"{text!r} is not between 0 and 1")


def _log_level(text: str) -> str:
    try:
        return parse_log_level(text)
    except ValueError as wrong:
        _refuse(str(wrong))


def parse_log_level(text: str) -> str:
    """A level, or a filter in the syntax of `RUST_LOG` whose first bare level holds for Python; raises `ValueError`."""
    levels = [part.rpartition("=")[2].strip().lower() for part in text.split(",")]
    if not text or not all(level in _RUST_LEVELS for level in levels):
        raise ValueError(
            f"{text!r} is no log level: error, warn, info, debug, trace, off (or module=level, separated by commas)"
        )
    return text.lower()
