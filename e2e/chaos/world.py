"""The cluster under test, and the doing of faults: processes and network. It decides nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from harness.load import wait_until

from chaos import disks
from chaos.faults import Fault, Kind, Target
from chaos.network import Network, address

TEXT_PORT, GRPC_PORT, HTTP_PORT, RAFT_PORT = 8080, 9090, 8088, 6000
READY_TIMEOUT_S = 120.0
CRASHES = 3
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class World:
    """Nodes 1 to N, each a process on a host of its own."""

    def __init__(
        self, directory: Path, network: Network, *, nodes: int, options: tuple[str, ...], own_disks: bool
    ) -> None:
        self._directory = directory
        self._own_disks = own_disks
        self._network = network
        self._options = options
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes = range(1, nodes + 1)

    @property
    def bootstrap(self) -> str:
        """The gRPC addresses of all nodes."""
        return ",".join(self.grpc_address(node) for node in self.nodes)

    def grpc_address(self, node: int) -> str:
        return f"{address(node)}:{GRPC_PORT}"

    def found(self) -> None:
        """Starts the cluster and waits until every node serves and the metadata has its voters."""
        for node in self.nodes:
            if self._own_disks:
                disks.mount(self._directory, f"node-{node}")
            self.start(node)
        wait_until(self.is_whole, "the cluster to be whole", READY_TIMEOUT_S)

    def is_whole(self) -> bool:
        """Whether every node serves, and the metadata is in as many hands as it will be."""
        voters = max(count for count in (1, 3, 5) if count <= len(self.nodes))
        statuses = [self._status(node) for node in self.nodes]
        return all(
            status.get("ready") is True
            and sum(member.get("voter") is True for member in (status.get("raft") or {}).get("members", ())) >= voters
            for status in statuses
        )

    def start(self, node: int) -> None:
        """Starts the process of a node on its data."""
        home = self._disk(node) / "data"
        first = node == self.nodes[0]
        place = ["--join", f"{address(self.nodes[0])}:{RAFT_PORT}"] if not first else []
        if first and not home.exists():
            place = ["--bootstrap"]
        host = address(node)
        command = [
            *self._network.command(node),
            *(sys.executable, "-m", "walrus_node", "--node-id", str(node), "--data-dir", str(home)),
            *("--client-host", host, "--raft-host", host, "--raft-advertise-host", host),
            *place,
            *self._options,
        ]
        with (self._directory / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"PYTHONUNBUFFERED": "1"}
            )

    def inject(self, fault: Fault) -> Fault:
        """Does a fault; returns it with the nodes that it really hit. A crash loop takes its whole time."""
        if fault.target is Target.METADATA_LEADER:
            leader = self._metadata_leader()
            fault = Fault(fault.kind, (leader,) if leader else fault.nodes, fault.lasting_ms, fault.rest_ms)
        others = [node for node in self.nodes if node not in fault.nodes]
        match fault.kind:
            case Kind.KILL:
                self._end(fault.nodes, signal.SIGKILL)
            case Kind.STOP:
                self._end(fault.nodes, signal.SIGTERM)
            case Kind.CRASH_LOOP:
                for _ in range(CRASHES):
                    self._end(fault.nodes, signal.SIGKILL)
                    for node in fault.nodes:
                        self.start(node)
                    threading.Event().wait(fault.lasting_ms / 1000 / CRASHES)
                self._end(fault.nodes, signal.SIGKILL)
            case Kind.PAUSE:
                self._signal(fault.nodes, signal.SIGSTOP)
            case Kind.ISOLATE | Kind.REFUSED:
                refuse = fault.kind is Kind.REFUSED
                self._network.cut(senders=fault.nodes, receivers=others, refuse=refuse)
                self._network.cut(senders=others, receivers=fault.nodes, refuse=refuse)
            case Kind.DEAF:
                self._network.cut(senders=others, receivers=fault.nodes)
            case Kind.MUTE:
                self._network.cut(senders=fault.nodes, receivers=others)
            case Kind.SLOW:
                for node in fault.nodes:
                    self._network.slow_down(node)
            case Kind.DISK_FULL:
                for node in fault.nodes:
                    disks.fill(self._disk(node))
        return fault

    def heal(self, fault: Fault) -> None:
        """Takes a fault back: processes run again, the network is whole."""
        match fault.kind:
            case Kind.KILL | Kind.STOP | Kind.CRASH_LOOP:
                for node in fault.nodes:
                    self.start(node)
            case Kind.PAUSE:
                self._signal(fault.nodes, signal.SIGCONT)
            case Kind.DISK_FULL:
                for node in fault.nodes:
                    disks.free(self._disk(node))
                    if self._processes[node].poll() is not None:  # its metadata could not be written, so it ended
                        self.start(node)
            case _:
                self._network.heal()

    def dead(self) -> list[str]:
        """Nodes whose process ended by itself, with the exit code."""
        codes = {node: process.poll() for node, process in self._processes.items()}
        return [f"node-{node} ended with exit code {code}" for node, code in codes.items() if code is not None]

    def end(self) -> None:
        """Kills what runs."""
        self._end(tuple(self._processes), signal.SIGKILL)

    def forget(self) -> None:
        """Kills what runs, and removes the data."""
        self.end()
        for node in self.nodes:
            if self._own_disks:
                disks.unmount(self._directory, f"node-{node}")
            else:
                shutil.rmtree(self._disk(node))

    def _disk(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _signal(self, nodes: tuple[int, ...], number: signal.Signals) -> None:
        for node in nodes:
            self._processes[node].send_signal(number)

    def _end(self, nodes: tuple[int, ...], number: signal.Signals) -> None:
        self._signal(nodes, number)
        for node in nodes:
            self._processes[node].wait(timeout=60)

    def _metadata_leader(self) -> int | None:
        for node in self.nodes:
            if (self._status(node).get("raft") or {}).get("state") == "leader":
                return node
        return None

    def _status(self, node: int) -> dict[str, Any]:
        try:
            with _OPENER.open(f"http://{address(node)}:{HTTP_PORT}/api/status", timeout=2) as answer:
                content = json.loads(answer.read())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
