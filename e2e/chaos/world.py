"""The cluster under test, and the doing of faults: processes and network. It decides nothing."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.waiting import wait_until
from walrus_client import Client, WalrusError

from chaos import damage, disks
from chaos.administration import Administration
from chaos.clocks import Clocks
from chaos.faults import Fault, Kind, Target
from chaos.kafka import KAFKA_PORT
from chaos.network import Network, address
from chaos.stores import StoredLog, list_store, read_store

TEXT_PORT, GRPC_PORT, HTTP_PORT, RAFT_PORT, PEER_PORT, ADMIN_PORT = 8080, 9090, 8088, 6000, 6001, 9091
READY_TIMEOUT_S = 120.0
CRASHES = 3
ASLEEP_S = 60
MAY_END_S = 60.0  # after a disk was full
SCRUB_EVERY_MS = 500
MENDED_TIMEOUT_S, MENDED_LOOK_S = 120.0, 1.0
COMPACTED, COMPACTION_REST_S = b"a partition is compacted", 2.0  # what a node logs, and how long it then rests
COMPACTING_TIMEOUT_S, COMPACTING_MS = 6.0, 100  # a compaction most likely ends within so long
RESET_S = 0.5  # for connections that stand to be reset
_FAILOVERS = re.compile(r'walrus_failovers_total\{reason="([a-z_]+)"\} ([0-9.]+)')
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class World:
    """Nodes 1 to N, each a process on a host of its own."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        nodes: int,
        options: tuple[str, ...],
        own_disks: bool,
        clocks: Clocks | None,
        topic: str,
    ) -> None:
        """*topic* is the one whose leader a fault may be aimed at; without *clocks* they stay right."""
        self._directory = directory
        self._own_disks = own_disks
        self._network = network
        self._options = options
        self._clocks = clocks
        self._topic = topic
        self._founded = False
        self._secret_file = directory / "secret"
        self._secret_file.write_text(secrets.token_hex(32) + "\n")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lost: dict[int, str] = {}  # disks that are gone, by node
        admins = {node: f"{address(node)}:{ADMIN_PORT}" for node in range(1, nodes + 1)}
        self._administration = Administration(admins, self._secret_file)
        self._may_end: dict[int, float] = {}  # nodes whose disk was full, and until when
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
        wait_until("the cluster to be whole", self.is_whole, timeout_s=READY_TIMEOUT_S)
        self._founded = True

    def kafka_address(self, node: int) -> str:
        return f"{address(node)}:{KAFKA_PORT}"

    def text_address(self, node: int) -> str:
        return f"{address(node)}:{TEXT_PORT}"

    def stores(self) -> dict[int, dict[str, StoredLog]]:
        """What lies on each disk, by node and segment. No node may run."""
        return {node: read_store(self._home(node) / "log") for node in self.nodes}

    def segments_on_disks(self) -> dict[int, set[str]]:
        """The segments of which each disk has bytes, by node. All of them run, and stand still one after the other."""
        found = {}
        for node in self.nodes:
            with self._standing_still(node) as store:
                found[node] = list_store(store)
        return found

    def listed_segments(self) -> set[str]:
        """The segments of all topics, as a node knows them."""
        return self._administration.listed(node=self.nodes[0])

    def is_whole(self) -> bool:
        """Whether every node serves, and the metadata is in as many hands as it will be."""
        voters = max(count for count in (1, 3, 5) if count <= len(self.nodes))
        statuses = [self._status(node) for node in self.nodes]
        return all(
            status.get("ready") is True
            and sum(member.get("voter") is True for member in (status.get("raft") or {}).get("members", ())) >= voters
            for status in statuses
        )

    def wait_until_all_have_caught_up(self) -> None:
        """Returns when each node could do without any other: what whoever restarts them one by one waits for."""

        def have_caught_up() -> bool:
            return self.is_whole() and all(self._administration.has_caught_up(node) for node in self.nodes)

        wait_until("all nodes to catch up", have_caught_up, timeout_s=READY_TIMEOUT_S)

    def failovers(self) -> dict[int, dict[str, int]]:
        """The segments whose end each node that answers has decided in a recovery, by cause."""
        found = {}
        for node in self.nodes:
            try:
                with _OPENER.open(f"http://{address(node)}:{HTTP_PORT}/metrics", timeout=2) as answer:
                    lines = answer.read().decode().splitlines()
            except OSError:
                continue
            counters = (_FAILOVERS.fullmatch(line) for line in lines)
            found[node] = {counter[1]: int(float(counter[2])) for counter in counters if counter}
        return found

    def start(self, node: int, *more: str) -> None:
        """Starts the process of a node on its data, with *more* options than the others."""
        others = [other for other in self.nodes if other != node]
        place = ["--join", ",".join(f"{address(other)}:{RAFT_PORT}" for other in others)] if others else []
        if node == self.nodes[0] and not self._founded:
            place = ["--bootstrap"]
        home, host = self._home(node), address(node)
        command = [
            *self._network.command(node),
            *(sys.executable, "-m", "walrus_node", "--node-id", str(node), "--data-dir", str(home)),
            *("--bind-host", host, "--advertise-host", host, "--node-name", f"node-{node}"),
            *("--secret-file", str(self._secret_file)),
            *place,
            *self._options,
            *more,
        ]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if self._clocks is not None:
            environment |= self._clocks.environment(node)
        with (self._directory / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def aimed(self, fault: Fault) -> Fault:
        """The fault with its target found; who was drawn is hit if it cannot be.

        Waits where a moment is part of the target.
        """
        match fault.target:
            case Target.DRAWN:
                return fault
            case Target.METADATA_LEADER:
                found = self._metadata_leader()
            case Target.SEGMENT_LEADER:
                found = self._segment_leader()
            case Target.COMPACTOR:
                found = self._compactor(fault.lasting_ms % COMPACTING_MS)
        return replace(fault, nodes=(found,) if found else fault.nodes, target=Target.DRAWN)

    def inject(self, fault: Fault) -> None:
        """Does a fault to its nodes. Some kinds take their whole time."""
        nodes = fault.nodes
        match fault.kind:
            case Kind.KILL:
                self._end(nodes, signal.SIGKILL)
            case Kind.STOP:
                self._end(nodes, signal.SIGTERM)
            case Kind.CRASH_LOOP:
                self._crash_again_and_again(fault)
            case Kind.PAUSE:
                self._signal(nodes, signal.SIGSTOP)
            case Kind.SLOW:
                for node in nodes:
                    self._network.slow_down(node)
            case Kind.DISK_FULL:
                for node in nodes:
                    disks.fill(self._disk(node))
            case Kind.DISK_LOST | Kind.FOUNDER_EMPTIED | Kind.JOURNAL_LOST | Kind.LOST_MAJORITY:
                self._lost |= {node: self._administration.disk(node) for node in nodes}
                self._end(nodes, signal.SIGKILL)
                for node in nodes:
                    self._harm(fault, node)
            case Kind.OPEN_ROT | Kind.DAMAGE | Kind.ROLLBACK | Kind.ROLLED_BACK_TOPIC:
                if fault.kind is Kind.ROLLBACK:
                    self.keep_metadata(nodes)
                    threading.Event().wait(fault.lasting_ms / 1000)
                self._end(nodes, signal.SIGKILL)
                for node in nodes:
                    self._harm(fault, node)
            case Kind.ROT:
                for node in nodes:
                    self._rot(fault, node)
            case Kind.CLOCK | Kind.SUSPEND:
                for node in nodes:
                    self._set_clock(fault, node)
            case _:
                self._cut(fault)

    def heal(self, fault: Fault) -> None:
        """Takes a fault back: processes run again, the network is whole."""
        match fault.kind:
            case Kind.KILL | Kind.STOP | Kind.CRASH_LOOP | Kind.DAMAGE | Kind.ROLLBACK:
                for node in fault.nodes:
                    self.start(node)
            case Kind.DISK_LOST | Kind.FOUNDER_EMPTIED:
                for node in fault.nodes:
                    self.start(node, *(("--bootstrap",) if fault.kind is Kind.FOUNDER_EMPTIED else ()))
                    other = next(other for other in self.nodes if other != node)
                    self._administration.replace(self._lost.pop(node), node, through=other)
            case Kind.JOURNAL_LOST:
                for node in fault.nodes:
                    self.start(node)
                wait_until(
                    "the node to come back as another disk, and be whole", self._is_back, timeout_s=MENDED_TIMEOUT_S
                )
            case Kind.LOST_MAJORITY:
                (survivor,) = (node for node in self.nodes if node not in fault.nodes)
                self._administration.recover_metadata(survivor, [self._lost[node] for node in fault.nodes])
                for node in fault.nodes:
                    self.start(node)
                is_back = partial(self._is_back, survivor)
                wait_until("new disks to have what the lost ones had", is_back, timeout_s=MENDED_TIMEOUT_S)
            case Kind.ROLLED_BACK_TOPIC:
                for node in fault.nodes:
                    self.start(node)
                wait_until("the cluster to be whole on its old metadata", self.is_whole, timeout_s=READY_TIMEOUT_S)
            case Kind.OPEN_ROT:
                for node in fault.nodes:
                    self.start(node)
                    is_mended = partial(self._is_mended, node)
                    wait_until(
                        f"node-{node} to mend what rotted", is_mended, timeout_s=MENDED_TIMEOUT_S, every_s=MENDED_LOOK_S
                    )
            case Kind.PAUSE:
                self._signal(fault.nodes, signal.SIGCONT)
            case Kind.DISK_FULL:
                for node in fault.nodes:
                    disks.free(self._disk(node))
                self._may_end |= dict.fromkeys(fault.nodes, time.monotonic() + MAY_END_S)
            case Kind.ROT:
                for node in fault.nodes:
                    is_mended = partial(self._is_mended, node)
                    wait_until(
                        f"node-{node} to mend what rotted", is_mended, timeout_s=MENDED_TIMEOUT_S, every_s=MENDED_LOOK_S
                    )
            case Kind.CLOCK:
                for node in fault.nodes:
                    self._clock().shift(node, wall_s=0)
            case Kind.SUSPEND:
                pass  # what was slept is over
            case _:
                self._network.heal()

    def keep_metadata(self, nodes: Iterable[int]) -> None:
        """Remembers the metadata of nodes as they are now, all at one moment: none of them does anything meanwhile."""
        self._signal(nodes, signal.SIGSTOP)
        try:
            for node in nodes:
                damage.keep_metadata(self._home(node), self._aside(node))
        finally:
            self._signal(nodes, signal.SIGCONT)

    def wait_until_others_have_all(self, nodes: Iterable[int]) -> None:
        """Returns when each disk of the others has every record that was acknowledged; nobody may write meanwhile."""
        for node in set(self.nodes) - set(nodes):
            self._administration.wait_until_it_has_all(node)

    def take_back(self, topic: str) -> None:
        """Has a topic named again that the metadata forgot."""
        self._administration.take_back(topic, through=self.nodes[0])

    def tend(self) -> None:
        """Starts what has ended for want of space, as whoever runs a cluster does: it may still end a little later."""
        for node, until in self._may_end.items():
            if time.monotonic() < until and self._processes[node].poll() is not None:
                self.start(node)

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

    def _crash_again_and_again(self, fault: Fault) -> None:
        for _ in range(CRASHES):
            self._end(fault.nodes, signal.SIGKILL)
            for node in fault.nodes:
                self.start(node)
            threading.Event().wait(fault.lasting_ms / 1000 / CRASHES)
        self._end(fault.nodes, signal.SIGKILL)

    def _cut(self, fault: Fault) -> None:
        hit, others = fault.nodes, [node for node in self.nodes if node not in fault.nodes]
        port = {Kind.CUT_DATA: PEER_PORT, Kind.CUT_METADATA: RAFT_PORT}.get(fault.kind)
        refuse = fault.kind is Kind.REFUSED
        match fault.kind:
            case Kind.ISOLATE | Kind.REFUSED | Kind.CUT_DATA | Kind.CUT_METADATA:
                self._network.cut(senders=hit, receivers=others, refuse=refuse, port=port)
                self._network.cut(senders=others, receivers=hit, refuse=refuse, port=port)
            case Kind.DEAF:
                self._network.cut(senders=others, receivers=hit)
            case Kind.MUTE:
                self._network.cut(senders=hit, receivers=others)
            case Kind.LATE | Kind.HALF_OPEN:
                self._network.cut(senders=self.nodes, receivers=hit, refuse=True)
                self._network.cut(senders=hit, receivers=self.nodes, refuse=True)
                threading.Event().wait(RESET_S)
                self._network.heal()
                for node in hit:
                    ports = (RAFT_PORT, PEER_PORT)
                    self._network.divert(
                        node, mode=str(fault.kind), seed=fault.lasting_ms, senders=self.nodes, ports=ports
                    )

    def _harm(self, fault: Fault, node: int) -> None:
        home = self._home(node)
        match fault.kind:
            case Kind.ROLLBACK | Kind.ROLLED_BACK_TOPIC:
                damage.roll_back_metadata(home, self._aside(node))
            case Kind.DISK_LOST | Kind.FOUNDER_EMPTIED | Kind.LOST_MAJORITY:
                damage.lose(home)
            case Kind.JOURNAL_LOST:
                damage.lose_end(home / "log")
            case Kind.OPEN_ROT:
                damage.flip_bits(home / "log", fault.lasting_ms, in_sealed=False)
            case Kind.DAMAGE:
                damage.flip_bits(home / "log", fault.lasting_ms)

    def _is_back(self, through: int = 1) -> bool:
        """Whether the disks that lost their votes are out, and nothing lacks copies."""
        return self._administration.is_without(self._lost.values(), node=through) and self.is_whole()

    def _rot(self, fault: Fault, node: int) -> None:
        with self._administration.of(node) as admin:
            admin.set_config({"scrub.interval_ms": SCRUB_EVERY_MS})  # else what nobody reads is found within a day
        with self._standing_still(node) as store:
            damage.flip_bits(store, fault.lasting_ms)

    def _is_mended(self, node: int) -> bool:
        with self._standing_still(node) as store:
            return damage.is_whole(store)

    @contextmanager
    def _standing_still(self, node: int) -> Iterator[Path]:
        """A node does nothing meanwhile; gives its store."""
        self._signal((node,), signal.SIGSTOP)
        try:
            with damage.unlocked(self._home(node) / "log") as store:
                yield store
        finally:
            self._signal((node,), signal.SIGCONT)

    def _set_clock(self, fault: Fault, node: int) -> None:
        if fault.kind is Kind.SUSPEND:
            self._clock().sleep(node, seconds=ASLEEP_S)
        else:
            self._clock().shift(node, wall_s=fault.clock_wrong_s)

    def _clock(self) -> Clocks:
        assert self._clocks is not None, "faults of clocks are left out where there are none to set"
        return self._clocks

    def _home(self, node: int) -> Path:
        return self._disk(node) / "data"

    def _aside(self, node: int) -> Path:
        return self._directory / f"metadata-{node}"

    def _disk(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _signal(self, nodes: Iterable[int], number: signal.Signals) -> None:
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

    def _segment_leader(self) -> int | None:
        try:
            with Client(self.bootstrap, retry_timeout_ms=2_000) as client:
                leader = client.segments(self._topic)[0].segments[-1].leader
        except WalrusError:
            return None
        hosts = {self.grpc_address(node): node for node in self.nodes}
        return hosts.get(leader.grpc_address) if leader else None

    def _compactor(self, later_ms: int) -> int | None:
        """Waits until a node tells of a compaction, and for as long as it then rests before the next one."""
        logs = {node: self._directory / f"node-{node}.log" for node in self.nodes}
        sizes = {node: log.stat().st_size for node, log in logs.items()}
        found: list[int] = []

        def has_told() -> bool:
            for node, log in logs.items():
                with log.open("rb") as file:
                    file.seek(sizes[node])
                    if COMPACTED in file.read():
                        found.append(node)
            return bool(found)

        try:
            wait_until("a compaction", has_told, timeout_s=COMPACTING_TIMEOUT_S)
        except TimeoutError:
            return None
        threading.Event().wait(COMPACTION_REST_S + later_ms / 1_000)
        return found[0]

    def _status(self, node: int) -> dict[str, Any]:
        try:
            with _OPENER.open(f"http://{address(node)}:{HTTP_PORT}/api/status", timeout=2) as answer:
                content = json.loads(answer.read())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
