"""A network of its own for each run: a namespace for each node, a bridge between them, and rules that drop packets.

The program itself runs in the namespace of the bridge (`enter`), so it reaches every node whatever is cut between them.
Addresses are of the block that is reserved for tests of networks (RFC 2544); nothing of it leaves the machine.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

NEEDED = ("ip", "iptables", "tc")
INSIDE = "WALRUS_CHAOS_HUB"
SLOW_RATE = ("rate", "2mbit", "burst", "32kbit", "latency", "400ms")
PROXY_SHIFT = 1_000  # a proxy listens so far above the port that it stands for
PROXY_READY_S = 60


class NetworkError(Exception):
    """The network could not be made or changed."""


def missing() -> str:
    """Why no network can be made here; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [program for program in NEEDED if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not found: install the packages iproute2 and iptables"
    probe = f"wlrs-probe-{os.getpid()}"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "netns", "exec", probe, "iptables", "-w", "-L", "-n")
        _run("ip", "netns", "exec", probe, "iptables", "-w", "-t", "nat", "-L", "-n")
    except NetworkError as failure:
        return f"no network namespace can be made: {failure}"
    finally:
        with suppress(NetworkError):
            _run("ip", "netns", "delete", probe)
    return ""


def enter(arguments: Sequence[str]) -> int:
    """Run `python -m chaos ARGUMENTS` again inside a new network; returns its exit code. The network goes with it."""
    hub = f"wlrs{os.getpid()}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what follows is undone
    _run("ip", "netns", "add", hub)
    try:
        command = ["ip", "netns", "exec", hub, sys.executable, "-m", "chaos", *arguments]
        return subprocess.run(command, env=os.environ | {INSIDE: hub}, check=False).returncode
    finally:
        for name in [name for name in _namespaces() if name == hub or name.startswith(f"{hub}n")]:
            for pid in _run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            _run("ip", "netns", "delete", name)


def hub() -> str | None:
    """The namespace of the bridge, if this program runs in it."""
    return os.environ.get(INSIDE)


class Network:
    """The bridge with its hosts, which are numbered from 1 on."""

    def __init__(self, hub: str, hosts: int) -> None:
        self._hub = hub
        self._hosts = range(1, hosts + 1)
        self._proxies: list[subprocess.Popen[str]] = []
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge", "type", "bridge")
        _run("ip", "address", "add", f"{address(254)}/24", "dev", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        for host in self._hosts:
            self._add(host)

    def command(self, host: int) -> list[str]:
        """What to put before a command so that it runs on a host."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def cut(
        self, *, senders: Iterable[int], receivers: Iterable[int], refuse: bool = False, port: int | None = None
    ) -> None:
        """What *senders* send does not reach *receivers* any more: dropped, or refused; all, or only of one port."""
        how = ["REJECT", "--reject-with", "tcp-reset"] if refuse else ["DROP"]
        tcp = ["--protocol", "tcp"] if refuse or port else []
        ports = [["--dport", str(port)], ["--sport", str(port)]] if port else [[]]
        receivers = list(receivers)
        for sender in senders:
            for receiver in (r for r in receivers if r != sender):
                for of_port in ports:
                    rule = ["-s", address(sender), *tcp, *of_port, "-j", *how]
                    self._on(receiver, "iptables", "-w", "-A", "INPUT", *rule)

    def divert(self, host: int, *, mode: str, seed: int, senders: Iterable[int], ports: Sequence[int]) -> None:
        """New connections of *senders* to *ports* of a host go through a `chaos.proxy`, and there are only new ones."""
        pairs = [f"{port}={port + PROXY_SHIFT}" for port in ports]
        command = [sys.executable, "-m", "chaos.proxy", mode, str(seed), address(host), *pairs]
        proxy = subprocess.Popen(
            [*self.command(host), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._proxies.append(proxy)
        assert proxy.stdout is not None
        if not select.select([proxy.stdout], [], [], PROXY_READY_S)[0] or proxy.stdout.readline() != "ready\n":
            raise NetworkError(f"{' '.join(command)} does not listen")
        for sender in (sender for sender in senders if sender != host):
            for port in ports:
                matches = ["-p", "tcp", "-s", address(sender), "--dport", str(port)]
                redirect = ["-j", "REDIRECT", "--to-ports", str(port + PROXY_SHIFT)]
                self._on(host, "iptables", "-w", "-t", "nat", "-A", "PREROUTING", *matches, *redirect)

    def slow_down(self, host: int) -> None:
        """What the host sends is slow from now on."""
        self._on(host, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *SLOW_RATE)

    def heal(self) -> None:
        """Takes back all cuts, slowness and proxies."""
        for proxy in self._proxies:
            proxy.kill()
            proxy.wait()
        self._proxies.clear()
        for host in self._hosts:
            self._on(host, "iptables", "-w", "-t", "nat", "-F", "PREROUTING")
            self._on(host, "iptables", "-w", "-F", "INPUT")
            if "tbf" in self._on(host, "tc", "qdisc", "show", "dev", "eth0"):
                self._on(host, "tc", "qdisc", "del", "dev", "eth0", "root")

    def _add(self, host: int) -> None:
        namespace, port = self._namespace(host), f"port{host}"
        _run("ip", "netns", "add", namespace)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _run("ip", "link", "set", port, "master", "bridge", "up")
        self._on(host, "ip", "link", "set", "lo", "up")
        self._on(host, "ip", "address", "add", f"{address(host)}/24", "dev", "eth0")
        self._on(host, "ip", "link", "set", "eth0", "up")

    def _on(self, host: int, *command: str) -> str:
        return _run(*self.command(host), *command)

    def _namespace(self, host: int) -> str:
        return f"{self._hub}n{host}"


def address(host: int) -> str:
    """The address of a host; 254 is the bridge, where this program runs."""
    return f"198.18.0.{host}"


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines()]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
