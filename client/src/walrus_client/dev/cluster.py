"""A cluster of real node processes on this machine: start, stop, kill and restart them, and see how they are.

The processes outlive the program that started them; what is needed to find them again is in `state.py`'s file.
"""

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from walrus_client.dev import health, state
from walrus_client.dev.ports import LOOPBACK, PORTS_PER_NODE, NoFreePorts, choose_base, is_free
from walrus_client.dev.processes import start_process
from walrus_client.dev.state import ClusterState, DevError, NodeOptions, NodeState, Ports

READY_TIMEOUT_S = 60.0  # from the start of a node until it serves
STOP_GRACE_S = 15.0  # for a node to end by itself before it is killed: it hands over what it leads first

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How one node is. `status` is its own account of itself, None if it does not answer."""

    node: NodeState
    running: bool
    readiness: health.Readiness
    memory_bytes: int | None
    status: dict[str, Any] | None

    def metadata_role(self) -> str | None:
        """Return what the node is in the metadata's Raft (leader, follower, ...); None if it does not say."""
        raft = (self.status or {}).get("raft") or {}
        return raft.get("state")


def start_cluster(
    directory: Path | str = state.DEFAULT_DIRECTORY,
    *,
    nodes: int = 3,
    base_port: int | None = None,
    options: NodeOptions | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
    progress: Progress = lambda _line: None,
) -> "DevCluster":
    """Start a cluster in *directory*, or what does not run of the one that is there; returns when every node is ready.

    Ports are chosen free, or from *base_port* on, at the first start, and kept. Options given later hold for the nodes
    that are started from then on, but how many replicas a segment has is decided when the cluster is founded: by
    default three, and one where there are fewer than three nodes. If a node does not get ready, those started here are
    stopped, and DevError is raised.
    """
    _require_node_package()
    cluster = DevCluster(Path(directory))
    cluster._create(nodes, base_port, options or NodeOptions())
    cluster.start(ready_timeout_s=ready_timeout_s, progress=progress)
    return cluster


def open_cluster(directory: Path | str = state.DEFAULT_DIRECTORY) -> "DevCluster":
    """Return the cluster that is in *directory*, running or not; raises DevError if there is none."""
    cluster = DevCluster(Path(directory))
    state.load(cluster.directory)
    return cluster


class DevCluster:
    """The cluster of one folder. Methods that start nodes return when these are ready."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """The nodes as they are now."""
        return state.load(self.directory).nodes

    @property
    def bootstrap(self) -> str:
        """The gRPC addresses of all nodes, running or not, for `Client`."""
        return ",".join(f"{LOOPBACK}:{node.ports.grpc}" for node in self.nodes)

    @property
    def running_bootstrap(self) -> str:
        """The gRPC addresses of the nodes that run; "" if none does."""
        return ",".join(state.addresses(self.directory, "grpc"))

    @property
    def admin_addresses(self) -> str:
        """The addresses of the admin service of all nodes, running or not, for `AdminClient`."""
        return ",".join(f"{LOOPBACK}:{node.ports.admin}" for node in self.nodes)

    @property
    def text_addresses(self) -> str:
        """The addresses of the text protocol of all nodes, running or not, for `TextClient`."""
        return ",".join(f"{LOOPBACK}:{node.ports.text}" for node in self.nodes)

    @property
    def kafka_bootstrap(self) -> str:
        """The addresses of Kafka's protocol of all nodes, running or not, as `bootstrap.servers` of its clients."""
        return ",".join(f"{LOOPBACK}:{node.ports.kafka}" for node in self.nodes)

    def listeners(self, name: str) -> dict[str, str]:
        """The addresses of one node's further listeners, running or not, by name, such as `kafka/outside`."""
        cluster = state.load(self.directory)
        found = cluster.options.further_listeners(cluster.node(name).ports)
        return {listener: f"{LOOPBACK}:{port}" for listener, (_, port) in found.items()}

    @property
    def secret_file(self) -> Path | None:
        """The file of the secret that the nodes share, for `AdminClient`."""
        return state.secret_file(self.directory)

    def start(
        self,
        names: Sequence[str] = (),
        *,
        ready_timeout_s: float = READY_TIMEOUT_S,
        progress: Progress = lambda _line: None,
    ) -> None:
        """Start the nodes named, or all, that do not run, and wait until they are ready."""
        wanted = [node.name for node in self._select(names)]
        started = self._spawn(wanted)
        for node in started:
            progress(f"{node.name} started, pid {node.process.pid if node.process else '?'}")
        try:
            for node in self._select(wanted):
                self._wait_until_ready(node, ready_timeout_s)
                progress(f"{node.name} is ready, text port {node.ports.text}")
            self._wait_for_voters(ready_timeout_s)
        except DevError:
            self._stop(self._select([node.name for node in started]), STOP_GRACE_S)
            raise

    def stop(self, names: Sequence[str] = (), *, grace_s: float = STOP_GRACE_S) -> list[str]:
        """End the nodes named, or all, with SIGTERM; returns the names of those that had to be killed in the end."""
        return self._stop(self._select(names), grace_s)

    def kill(self, name: str, *, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal to one node, and if it is SIGKILL wait for its end; False if it did not run."""
        (node,) = self._select([name])
        if node.process is None or not node.process.send(number):
            return False
        if number == signal.SIGKILL and not node.process.wait(STOP_GRACE_S):
            raise DevError(f"{node.name} (pid {node.process.pid}) has not ended {STOP_GRACE_S:g} s after SIGKILL")
        node.process.exit_code()  # so that our own child does not stay as a zombie
        return True

    def restart(self, name: str, *, ready_timeout_s: float = READY_TIMEOUT_S) -> None:
        """Stop one node, if it runs, and start it on its old ports and data."""
        self.stop([name])
        self.start([name], ready_timeout_s=ready_timeout_s)

    def status(self) -> list[NodeStatus]:
        """Ask every node how it is; those that do not run are in the answer, too."""
        return [_status(node) for node in self.nodes]

    def purge(self) -> None:
        """Stop all nodes and remove their data, their logs and the cluster itself."""
        self.stop()
        for node in self.nodes:
            shutil.rmtree(node.data_dir, ignore_errors=True)
            node.log_file.unlink(missing_ok=True)
        state.remove(self.directory)

    def _create(self, count: int, base_port: int | None, options: NodeOptions) -> None:
        """Write the state of a new cluster, or take options over into the one that is there."""
        with state.exclusive(self.directory):
            if state.exists(self.directory):
                there = state.load(self.directory)
                if len(there.nodes) != count:
                    raise DevError(
                        f"the cluster in {self.directory} has {len(there.nodes)} nodes, not {count}:"
                        " remove it first with `walrus dev down --purge`"
                    )
                first_port = there.nodes[0].ports.text
                if base_port not in (None, first_port):
                    raise DevError(
                        f"the cluster in {self.directory} has its ports from {first_port} on, and keeps them:"
                        " remove it first with `walrus dev down --purge`"
                    )
                founded = there.options.replication
                if there.options.updated(options).replication != founded:
                    raise DevError(
                        f"the cluster in {self.directory} was founded with {founded[0]} replicas of a segment and a"
                        f" write quorum of {founded[1]}, and keeps them: remove it first with `walrus dev down --purge`"
                    )
                state.save(self.directory, replace(there, options=there.options.updated(options)))
                return
            options = options.replicated(count)
            if not options.replication[1] <= options.replication[0] <= count:
                raise DevError(
                    f"{count} nodes cannot have {options.replication[0]} replicas of a segment with a write quorum of"
                    f" {options.replication[1]}: quorum <= replicas <= nodes"
                )
            try:
                base = base_port if base_port is not None else choose_base(self.directory, count)
            except NoFreePorts as failure:
                raise DevError(str(failure)) from failure
            if not 1 <= base <= 65_536 - PORTS_PER_NODE * count:
                raise DevError(f"{count} nodes need the ports {base} to {base + PORTS_PER_NODE * count - 1}")
            home = self.directory.resolve()
            nodes = tuple(
                NodeState(
                    name=f"node-{node_id}",
                    node_id=node_id,
                    data_dir=home / f"node-{node_id}",
                    log_file=home / f"node-{node_id}.log",
                    ports=Ports.in_block(base, node_id),
                )
                for node_id in range(1, count + 1)
            )
            state.create_secret(self.directory)
            state.save(self.directory, ClusterState(nodes=nodes, options=options))

    def _select(self, names: Sequence[str]) -> list[NodeState]:
        cluster = state.load(self.directory)
        return [cluster.node(name) for name in names] if names else list(cluster.nodes)

    def _spawn(self, names: Sequence[str]) -> list[NodeState]:
        """Start those of *names* that do not run, and remember each at once."""
        _require_node_package()
        started = []
        with state.exclusive(self.directory):
            cluster = state.load(self.directory)
            idle = [node for node in cluster.nodes if node.name in names and not node.is_running()]
            for node in idle:
                further = [port for _, port in cluster.options.further_listeners(node.ports).values()]
                taken = [port for port in (*_port_numbers(node), *further) if not is_free(port)]
                if taken:
                    raise DevError(
                        f"port {taken[0]} of {node.name} is in use by another program; a cluster keeps its ports:"
                        " end that program, or begin anew with `walrus dev down --purge`"
                    )
            for node in idle:
                command = _command(cluster, node, self.secret_file)
                process = start_process(command, log_file=node.log_file, environment=_environment())
                running = replace(node, process=process)
                cluster = replace(cluster, nodes=tuple(running if n.name == node.name else n for n in cluster.nodes))
                state.save(self.directory, cluster)
                started.append(running)
        return started

    def _wait_until_ready(self, node: NodeState, timeout_s: float) -> None:
        assert node.process is not None, "only nodes that were started are waited for"
        deadline = time.monotonic() + timeout_s
        while True:
            seen = health.readiness(node.ports.http)
            if seen.ready:
                break
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                lacks = ", ".join(seen.missing) or "an answer on its HTTP port"
                raise DevError(
                    f"{node.name} was not ready within {timeout_s:g} s; it still misses: {lacks}{_log_end(node)}"
                )
            if node.process.wait(min(left_s, 0.1)):
                code = node.process.exit_code()
                how = "" if code is None else f" with {_exit_text(code)}"
                raise DevError(f"{node.name} ended{how} before it was ready{_log_end(node)}")
        if node.node_id == 1:
            with state.exclusive(self.directory):
                state.save(self.directory, replace(state.load(self.directory), founded=True))

    def _wait_for_voters(self, timeout_s: float) -> None:
        """Wait until the metadata of a complete cluster is in as many hands as it will be.

        A node serves before it is a voter; until then the end of the first node would be the end of the cluster.
        """
        nodes = self.nodes
        expected = max(count for count in (1, 3, 5) if count <= len(nodes))
        deadline = time.monotonic() + timeout_s
        while all(node.is_running() for node in nodes):
            voters = min(health.voter_count(node.ports.http) for node in nodes)
            if voters >= expected:
                return
            if time.monotonic() > deadline:
                raise DevError(f"the metadata had only {voters} of {expected} voters after {timeout_s:g} s")
            time.sleep(0.05)

    def _stop(self, nodes: Sequence[NodeState], grace_s: float) -> list[str]:
        for node in nodes:
            if node.process is not None:
                node.process.send(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        killed = []
        for node in nodes:
            if node.process is None:
                continue
            if not node.process.wait(deadline - time.monotonic()):
                self.kill(node.name)
                killed.append(node.name)
            node.process.exit_code()
        return killed


def _status(node: NodeState) -> NodeStatus:
    if node.process is None or not node.is_running():
        return NodeStatus(node, False, health.Readiness(answered=False, ready=False), None, None)
    seen = health.readiness(node.ports.http)
    return NodeStatus(
        node=node,
        running=True,
        readiness=seen,
        memory_bytes=node.process.memory_bytes(),
        status=health.status(node.ports.http) if seen.answered else None,  # one that hangs costs time only once
    )


def _require_node_package() -> None:
    if importlib.util.find_spec("walrus_node") is None:
        raise DevError(
            f"the package walrus_node is not installed in {sys.prefix}: run `make setup` in the repository,"
            " or install it with pip, and use the `walrus` of that environment"
        )


def _command(cluster: ClusterState, node: NodeState, secret_file: Path | None) -> list[str]:
    ports = node.ports
    others = [f"{LOOPBACK}:{other.ports.raft}" for other in cluster.nodes if other.name != node.name]
    place = ["--join", ",".join(others)] if others else []
    if node.node_id == 1 and not cluster.founded:
        place.append("--bootstrap")
    lost = _lost_disk(cluster, node) if cluster.founded else None
    if lost:
        place += ["--replaces", lost]
    return [
        *(sys.executable, "-m", "walrus_node"),
        *("--node-id", str(node.node_id), "--data-dir", str(node.data_dir)),
        *("--client-host", LOOPBACK, "--client-port", str(ports.text)),
        *("--raft-host", LOOPBACK, "--raft-port", str(ports.raft), "--raft-advertise-host", LOOPBACK),
        *("--grpc-port", str(ports.grpc), "--peer-port", str(ports.peer), "--http-port", str(ports.http)),
        *("--admin-port", str(ports.admin), "--kafka-port", str(ports.kafka), "--node-name", node.name),
        *(("--secret-file", str(secret_file)) if secret_file else ()),
        *place,
        *cluster.options.arguments(ports),
    ]


def _lost_disk(cluster: ClusterState, node: NodeState) -> str | None:
    """The disk that the cluster knows at the node's address, where its folder is empty: nobody else has emptied it."""
    if (node.data_dir / "identity.json").exists() or (node.data_dir / "metadata").exists():
        return None
    raft_address = f"{LOOPBACK}:{node.ports.raft}"
    for other in cluster.nodes:
        told = health.status(other.ports.http) if other.is_running() else None
        for known in (told or {}).get("nodes", ()):
            if known["raft_address"] == raft_address:
                return str(known["disk"])
    return None


def _environment() -> dict[str, str]:
    # Places, ports and names are ours to say; a log that is cut off by a kill must not lack its last lines.
    passed_on = ("WALRUS_DISABLE_IO_URING", "WALRUS_MAX_SEGMENT_ENTRIES", "WALRUS_MONITOR_CHECK_MS")
    left_out = [k for k in os.environ if k.startswith(("WALRUS_", "RAFKA_")) and k not in passed_on]
    return {k: v for k, v in os.environ.items() if k not in left_out} | {"PYTHONUNBUFFERED": "1"}


def _port_numbers(node: NodeState) -> tuple[int, ...]:
    ports = node.ports
    return (ports.text, ports.grpc, ports.peer, ports.raft, ports.http, ports.admin, ports.kafka)


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _log_end(node: NodeState) -> str:
    try:
        lines = node.log_file.read_text(errors="replace").splitlines()[-15:]
    except FileNotFoundError:
        return ""
    return "".join(f"\n  {line}" for line in [f"the end of {node.log_file}:", *lines])
