"""What is remembered of a local cluster: `cluster.json` in its folder, replaced in one piece at each change."""

# ruff: noqa: N818 - as in `errors`, a name says what is the matter

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from walrus_client.dev.ports import LOOPBACK, PORTS_PER_NODE
from walrus_client.dev.processes import Process

DEFAULT_DIRECTORY = Path(".walrus/dev")
_FILE = "cluster.json"
_SHARED = "secret"
_VERSION = 1


class DevError(Exception):
    """Something about a local cluster that its user can mend; the message says how."""


class NoCluster(DevError):
    """There is no cluster in the folder."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one node, all on loopback."""

    text: int
    grpc: int
    peer: int
    raft: int
    http: int
    admin: int
    kafka: int

    @classmethod
    def in_block(cls, base: int, node_id: int) -> "Ports":
        """Return those of a node (ids count from 1) in the block that begins at *base*."""
        first = base + PORTS_PER_NODE * (node_id - 1)
        names = ("text", "grpc", "peer", "raft", "http", "admin", "kafka")
        return cls(**{name: first + place for place, name in enumerate(names)})

    @property
    def further(self) -> range:
        """Those that are left for further listeners of clients."""
        return range(self.text + len(asdict(self)), self.text + PORTS_PER_NODE)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options that are passed on to every node; None leaves the node's default."""

    backend: str | None = None
    fsync: str | None = None
    replication_factor: int | None = None
    write_quorum: int | None = None
    segment_entries_max: int | None = None
    segment_bytes_max: str | None = None
    segment_age_max: str | None = None
    segment_age_min: str | None = None
    monitor_check_ms: int | None = None
    frame_bytes_max: int | None = None
    log_level: str | None = None
    no_auto_create_topics: bool | None = None
    test_controls: bool | None = None
    # Further listeners of clients, each `NAME[,org=ORG][,admin=off]`.
    text_listener: Sequence[str] | None = None
    grpc_listener: Sequence[str] | None = None
    kafka_listener: Sequence[str] | None = None

    def further_listeners(self, ports: Ports) -> dict[str, tuple[str, int]]:
        """Return option and port of each further listener, by its name behind that of its protocol; raises DevError."""
        listeners = [
            (protocol, text)
            for protocol in ("text", "grpc", "kafka")
            for text in getattr(self, f"{protocol}_listener") or ()
        ]
        if len(listeners) > len(ports.further):
            raise DevError(f"a node has ports for {len(ports.further)} further listeners, not for {len(listeners)}")
        made = {}
        for (protocol, text), port in zip(listeners, ports.further, strict=False):
            name, comma, rest = text.partition(",")
            if "=" in name:
                raise DevError(
                    f"{text!r} names a place, and each node has its own: NAME[,org=ORG][,admin=off] is expected"
                )
            if name == protocol:
                raise DevError(f"each node has a listener {name} already: give the further one another name")
            made[f"{protocol}/{name}"] = (f"--{protocol}-listener={name}={LOOPBACK}:{port}{comma}{rest}", port)
        return made

    def arguments(self, ports: Ports) -> list[str]:
        """Return them as flags of the `walrus-node` that has these ports."""
        flags = [option for option, _ in self.further_listeners(ports).values()]
        for name, value in asdict(self).items():
            flag = "--" + name.replace("_", "-")
            if name.endswith("_listener"):
                continue
            if value is True:
                flags.append(flag)
            elif value is not None and value is not False:
                flags += [flag, str(value)]
        return flags

    @property
    def replication(self) -> tuple[int, int]:
        """Replicas of each segment, and how many of them have a record before it is acknowledged."""
        factor = self.replication_factor or 1
        return factor, self.write_quorum or factor // 2 + 1

    def replicated(self, nodes: int) -> "NodeOptions":
        """Return these with a number of replicas, if they had none: what a cluster of so many nodes is founded with."""
        factor = self.replication_factor or (3 if nodes >= 3 else 1)
        return replace(self, replication_factor=factor)

    def updated(self, newer: "NodeOptions") -> "NodeOptions":
        """Return these with what *newer* sets."""
        return NodeOptions(**asdict(self) | {k: v for k, v in asdict(newer).items() if v is not None})


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node of a local cluster; `process` is None before the first start."""

    name: str
    node_id: int
    data_dir: Path
    log_file: Path
    ports: Ports
    process: Process | None = None

    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.is_running()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A local cluster; `founded` once its first node was ready, from when on none is told to found it."""

    nodes: tuple[NodeState, ...]
    options: NodeOptions = field(default_factory=NodeOptions)
    founded: bool = False

    def node(self, name: str) -> NodeState:
        """Return the node of that name or id."""
        for node in self.nodes:
            if name in (node.name, str(node.node_id)):
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise DevError(f"there is no node {name!r}; the nodes are {known}")


def addresses(directory: Path, port: str) -> list[str]:
    """Return the addresses of the running nodes for one of the `Ports`; none without a cluster there."""
    try:
        state = load(directory)
    except DevError:
        return []
    return [f"{LOOPBACK}:{getattr(node.ports, port)}" for node in state.nodes if node.is_running()]


def secret_file(directory: Path) -> Path | None:
    """Return the file of the secret that the nodes of the cluster share; None where there is none."""
    path = directory.resolve() / _SHARED
    return path if path.exists() else None


def create_secret(directory: Path) -> None:
    """Make the secret of a new cluster, readable by its user only."""
    path = directory.resolve() / _SHARED
    path.unlink(missing_ok=True)
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(secrets.token_hex(32) + "\n")


def exists(directory: Path) -> bool:
    """Whether there is a cluster in the folder, running or not."""
    return (directory / _FILE).exists()


def load(directory: Path) -> ClusterState:
    """Read the state of the cluster in the folder; raises DevError if there is none, or none that can be read."""
    path = directory / _FILE
    try:
        content = json.loads(path.read_text())
        if content["version"] != _VERSION:
            raise DevError(f"{path} is of version {content['version']}, this program knows {_VERSION}")
        return ClusterState(
            nodes=tuple(_node(node) for node in content["nodes"]),
            options=NodeOptions(**content["options"]),
            founded=content["founded"],
        )
    except FileNotFoundError:
        raise NoCluster(f"there is no cluster in {directory}: start one with `walrus dev up`") from None
    except (KeyError, TypeError, ValueError) as failure:
        raise DevError(f"{path} cannot be read ({failure!r}): stop its nodes by hand and remove it") from failure


def save(directory: Path, state: ClusterState) -> None:
    """Write the state; it is there as a whole or not at all."""
    content = {
        "version": _VERSION,
        "nodes": [
            {
                "name": node.name,
                "node_id": node.node_id,
                "pid": node.process.pid if node.process else None,
                "process_began": node.process.began if node.process else None,
                "data_dir": str(node.data_dir),
                "log_file": str(node.log_file),
                "ports": asdict(node.ports),
            }
            for node in state.nodes
        ],
        "options": asdict(state.options),
        "founded": state.founded,
    }
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f"{_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(directory / _FILE)


def remove(directory: Path) -> None:
    """Forget the cluster; the folder goes, too, if nothing else is in it."""
    (directory / _FILE).unlink(missing_ok=True)
    (directory / _SHARED).unlink(missing_ok=True)
    (directory / ".lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Wait until no other command changes the state, and keep others from it; not for long waits."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _node(content: dict[str, Any]) -> NodeState:
    pid, began = content["pid"], content["process_began"]
    return NodeState(
        name=content["name"],
        node_id=content["node_id"],
        data_dir=Path(content["data_dir"]),
        log_file=Path(content["log_file"]),
        # A cluster of an older version has none for the admin service, or for Kafka's protocol.
        ports=Ports(
            **{"admin": content["ports"]["text"] + 5, "kafka": content["ports"]["text"] + 6, **content["ports"]}
        ),
        process=Process(pid, began) if pid is not None else None,
    )
