"""Connections between metadata nodes: one for each pair, identified by the disks at its ends and not by addresses.

Single-threaded: everything but `wake` and `answer_join` runs in the thread that calls `poll`. Both ends greet with
cluster, disk and process, and prove that they know the cluster's secret (`proof.py`), before a Raft message is read;
other clusters and unknown disks are refused. The one thing that somebody else may ask for, with the same proof, is to
join. `Stream` is the seam where mutual TLS goes in.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from walrus_node.address import Address
from walrus_node.metadata.proof import RAFT, Acceptor, Dialler, RefusedError
from walrus_node.metadata.wire import (
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    WIRE,
    BadFrameError,
    FrameReader,
    Message,
    Versions,
    decode_message,
    encode_frame,
    encode_greeting,
    encode_message,
)
from walrus_node.secret import Secrets
from walrus_node.words import told

log = logging.getLogger(__name__)

GREETING_MAX_S = 5.0
STRANGERS_MAX = 64
DIAL_MIN_S = 0.1
DIAL_MAX_S = 1.0
# Longer than the pause between two dials, so that what one asked for is there for the next.
DNS_CACHE_S = 2.0
UNSENT_BYTES_MAX = 64 * 1024 * 1024
QUIET_S = 30.0
NOTED_MAX = 1_000
_DEAD_PEER_MS = 5_000


def listen(host: str, port: int) -> socket.socket:
    """The listener that a transport is given; raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


@dataclass(frozen=True)
class Me:
    """What this node says of itself when it greets."""

    cluster_id: str
    disk: str
    process: str
    raft_address: str
    versions: Versions = WIRE
    secrets: Secrets = field(default_factory=lambda: Secrets(None))


@dataclass
class Events:
    """Whom the transport tells; called in the polling thread."""

    on_message: Callable[[str, Message], None]
    on_connected: Callable[[str], None]
    on_disconnected: Callable[[str], None]
    on_join: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]
    # A disk of this cluster, as it says, that is not known here, and its address: who is behind does not know all.
    on_unknown: Callable[[UUID, str], None] = lambda _disk, _address: None


class Transport:
    """Keeps connections to the peers, dialling and accepting; sends are queued, never block and may be lost."""

    def __init__(self, me: Me, listener: socket.socket, events: Events) -> None:
        self._me = me
        self._events = events
        self._selector = selectors.DefaultSelector()
        self._resolver = _Resolver(self.wake)
        self._connections: set[_Connection] = set()
        self._open: dict[str, _Connection] = {}
        self._addresses: dict[str, str] = {}
        self._learned: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._seeds: tuple[str, ...] = ()
        self._dials: dict[str, _Dial] = {}
        self._noted: dict[str, float] = {}
        self._answers: deque[tuple[_Connection, dict[str, Any]]] = deque()
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._spare: int | None = _open_spare()
        # A descriptor that was closed may be another file's by now.
        self._waking, self._closed = threading.Lock(), False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakes)

    def set_peers(self, addresses: Mapping[str, str], *, wanted: Iterable[str], seeds: Iterable[str]) -> None:
        """Known disks with their addresses, those to keep a connection to, and addresses to try whoever is there."""
        listed = {disk: address for disk, address in addresses.items() if disk != self._me.disk}
        for disk in self._learned.keys() & listed.keys():
            if listed[disk] != self._addresses.get(disk):
                del self._learned[disk]  # what the list says now is newer than the greeting
        self._addresses = listed
        self._wanted = set(wanted) - {self._me.disk}
        self._seeds = tuple(seed for seed in seeds if seed != self._me.raft_address)
        for disk in self._open.keys() - self._addresses.keys() - self._wanted:
            self._close(self._open[disk], f"disk {disk} is not known here any more")

    def address_of(self, peer: str) -> str | None:
        return self._learned.get(peer) or self._addresses.get(peer)

    def connected(self) -> set[str]:
        return set(self._open)

    def send(self, peer: str, message: Message) -> bool:
        """Queue a message; `False` if there is no connection. `True` promises nothing about its arrival."""
        connection = self._open.get(peer)
        if connection is None:
            return False
        connection.send(encode_message(message))
        if connection.unsent > UNSENT_BYTES_MAX:
            self._close(connection, "it does not take what we send")
        else:
            self._flush(connection)
        return self._open.get(peer) is connection

    def unsent(self, peer: str) -> int:
        """Bytes queued for the peer."""
        connection = self._open.get(peer)
        return connection.unsent if connection else 0

    def poll(self, timeout_s: float) -> None:
        """Wait for events, at most so long, and handle them."""
        self._dial_due()
        ready = self._selector.select(max(0.0, min(timeout_s, self._due_in_s())))
        for key, mask in ready:
            if isinstance(key.data, _Connection):
                self._serve(key.data, mask)
            else:
                key.data()
        self._send_answers()
        self._expire_strangers()

    def wake(self) -> None:
        """End a `poll` from any thread; after `close` it does nothing."""
        with self._waking, contextlib.suppress(BlockingIOError):  # full: there are wakes enough
            if not self._closed:
                os.write(self._wake_write, b"w")

    def close(self) -> None:
        for connection in list(self._connections):
            self._close(connection, None)
        self._selector.close()
        self._listener.close()
        with self._waking:
            self._closed = True
            if self._spare is not None:
                os.close(self._spare)
            os.close(self._wake_read)
            os.close(self._wake_write)

    # Dialling

    def _dial_due(self) -> None:
        now = time.monotonic()
        for target, address in self._targets().items():
            dial = self._dials.setdefault(target, _Dial())
            if dial.connection is None and now >= dial.next_at:
                dial.pause(now)
                self._dial(target, address, dial)

    def _targets(self) -> dict[str, str]:
        """Whom to dial: wanted peers by disk, seeds by address as long as no wanted peer is connected."""
        targets = {}
        for disk in self._wanted - self._open.keys():
            # In turn: a node that moved says its new address first in its greeting, and lists it a little later.
            known = dict.fromkeys(filter(None, (self._learned.get(disk), self._addresses.get(disk))))
            if known:
                dial = self._dials.get(disk, _NEVER_DIALLED)
                targets[disk] = tuple(known)[dial.attempts % len(known)]
        if not self._wanted & self._open.keys():
            targets |= {seed: seed for seed in self._seeds}
        return targets

    def _dial(self, target: str, address: str, dial: _Dial) -> None:
        try:
            place = Address.parse(address)
        except ValueError as wrong:
            self._note(f"{target} cannot be dialled: {wrong}")
            return
        ip = self._resolver.resolve(place.host)
        if ip is None:
            return
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        dialled = socket.socket(family, socket.SOCK_STREAM)
        dialled.setblocking(False)
        code = dialled.connect_ex((ip, place.port))
        if code not in (0, errno.EINPROGRESS):
            dialled.close()
            return
        to = None if target == address else target
        proof = Dialler(self._me.secrets, RAFT, self._greeting(to))
        connection = _Connection(Stream(dialled), target, proof)
        dial.connection = connection
        connection.send(encode_frame(proof.greeting))
        self._connections.add(connection)
        self._selector.register(dialled, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def _greeting(self, to: str | None) -> dict[str, object]:
        return {
            **self._me.versions.told("hello"),
            "cluster": self._me.cluster_id,
            "disk": self._me.disk,
            "process": self._me.process,
            "raft_address": self._me.raft_address,
            "to": to,
        }

    def _due_in_s(self) -> float:
        now = time.monotonic()
        dials = (self._dials.get(target, _NEVER_DIALLED) for target in self._targets())
        due = [dial.next_at for dial in dials if dial.connection is None]
        due += [connection.expires_at for connection in self._connections if connection.peer is None]
        return max(0.0, min(due, default=now + 60.0) - now)

    # Accepting, greeting

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            self._turn_away(error)
            return
        accepted.setblocking(False)
        connection = _Connection(Stream(accepted), None, Acceptor(self._me.secrets))
        self._connections.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        strangers = [connection for connection in self._connections if connection.peer is None]
        if len(strangers) > STRANGERS_MAX:
            self._close(min(strangers, key=lambda stranger: stranger.expires_at), "too many strangers")

    def _turn_away(self, error: OSError) -> None:
        """No descriptor is left: with the spare one the call is taken and dropped, else it would spin this loop."""
        self._note(f"no connection can be accepted: {error.strerror}")
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with contextlib.suppress(OSError):
                self._listener.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = _open_spare()

    def _expire_strangers(self) -> None:
        now = time.monotonic()
        for connection in [stranger for stranger in self._connections if stranger.peer is None]:
            if now >= connection.expires_at:
                self._close(connection, None)

    def _prove(self, connection: _Connection, payload: bytes) -> None:
        """The next step of the greeting."""
        try:
            step = connection.proof.hear(payload)
        except RefusedError as refused:
            self._close(connection, f"refused by the other side: {refused}")
            return
        except BadFrameError as error:
            if not connection.dialled:
                self._refuse(connection, str(error))
            raise
        if isinstance(step, bytes):
            connection.send(encode_frame(step))
            self._flush(connection)
        elif step is not None:
            self._greeted(connection, step)

    def _refuse(self, connection: _Connection, why: str) -> None:
        connection.send(encode_greeting({"refused": why}))
        self._flush(connection)

    def _answer(self, connection: _Connection, answer: dict[str, Any]) -> None:
        assert isinstance(connection.proof, Acceptor), "who dialled is answered, not the other way round"
        for payload in connection.proof.answer(answer):
            connection.send(encode_frame(payload))
        self._flush(connection)

    def _greeted(self, connection: _Connection, greeting: dict[str, Any]) -> None:
        if not connection.dialled and "join" in greeting:
            connection.expires_at = time.monotonic() + 6 * GREETING_MAX_S
            self._events.on_join(greeting, lambda answer: self.answer_join(connection, answer))
            return
        why = self._why_refused(connection, greeting)
        if why is not None:
            if not connection.dialled:
                self._refuse(connection, why)
            self._close(connection, why)
            return
        peer = greeting["disk"]
        if not connection.dialled:
            self._answer(connection, self._greeting(peer))
        self._learned[peer] = greeting["raft_address"]
        self._establish(connection, peer, greeting["process"])

    def _why_refused(self, connection: _Connection, greeting: dict[str, Any]) -> str | None:
        if "refused" in greeting:
            return f"refused by the other side: {told(greeting['refused'])}"
        names = ("cluster", "disk", "process", "raft_address")
        try:
            theirs = Versions.parse(greeting, "hello")
        except BadFrameError as error:
            return str(error)
        if self._me.versions.negotiate(theirs) is None:
            return self._me.versions.refusal(theirs)
        if not all(isinstance(greeting.get(name), str) for name in names):
            return "a greeting lacks who it is from"
        try:
            UUID(greeting["disk"])
            Address.parse(greeting["raft_address"])
        except ValueError as wrong:
            return f"a greeting has no disk or no address: {wrong}"
        if greeting["cluster"] != self._me.cluster_id:
            return f"cluster {greeting['cluster']} is not ours ({self._me.cluster_id})"
        if greeting.get("to") not in (None, self._me.disk):
            return f"disk {greeting['to']} is not here, this is {self._me.disk}"
        disk = greeting["disk"]
        if disk == self._me.disk:
            return "this is the same disk"
        if disk not in self._addresses and disk not in self._wanted:
            self._events.on_unknown(UUID(disk), greeting["raft_address"])
            return f"disk {disk} is not known here"
        if connection.dialled in self._wanted and connection.dialled != disk:
            return f"disk {connection.dialled} was expected, {disk} answered"
        return None

    def _establish(self, connection: _Connection, peer: str, process: str) -> None:
        """One connection for each pair survives: the smaller disk's dial; a new process replaces the old one's."""
        present = self._open.get(peer)
        if present is not None and present.process == process:
            preferred_is_dialled = self._me.disk < peer
            if bool(present.dialled) == preferred_is_dialled:
                self._close(connection, None)
                return
        if present is not None:
            self._close(present, None)
        connection.peer, connection.process = peer, process
        connection.frames.frame_bytes_max = FRAME_BYTES_MAX
        self._open[peer] = connection
        self._dials.pop(peer, None)
        if connection.dialled:
            self._dials.pop(connection.dialled, None)
        self._events.on_connected(peer)

    def answer_join(self, connection: _Connection, answer: dict[str, Any]) -> None:
        """Thread-safe: the polling thread sends it."""
        self._answers.append((connection, answer))
        self.wake()

    def _send_answers(self) -> None:
        while self._answers:
            connection, answer = self._answers.popleft()
            if connection in self._connections:
                self._answer(connection, answer)
                connection.expires_at = time.monotonic() + GREETING_MAX_S

    # Bytes

    def _serve(self, connection: _Connection, mask: int) -> None:
        if connection not in self._connections:
            return
        if mask & selectors.EVENT_WRITE:
            self._flush(connection)
        if mask & selectors.EVENT_READ and connection in self._connections:
            self._read(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.stream.receive()
        except OSError as error:
            self._close(connection, None if connection.peer is None else str(error))
            return
        if data is None:
            return
        if not data:
            self._close(connection, None)
            return
        try:
            for payload in connection.frames.feed(data):
                if connection.peer is None:
                    self._prove(connection, payload)
                else:
                    self._events.on_message(connection.peer, decode_message(payload))
                if connection not in self._connections:
                    return
        except BadFrameError as error:
            self._close(connection, str(error))
        # An OSError of `on_message` is not the connection's: the journal failed, and the member cannot go on.

    def _flush(self, connection: _Connection) -> None:
        try:
            connection.flush()
        except OSError as error:
            self._close(connection, None if connection.peer is None else str(error))
            return
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        if mask != self._selector.get_key(connection.stream.socket).events:
            self._selector.modify(connection.stream.socket, mask, connection)

    def _close(self, connection: _Connection, why: str | None) -> None:
        if connection not in self._connections:
            return
        if why is not None:
            self._note(f"connection {connection.name()} closed: {why}")
        self._connections.discard(connection)
        self._selector.unregister(connection.stream.socket)
        connection.stream.close()
        if connection.dialled:
            dial = self._dials.get(connection.dialled)
            if dial is not None and dial.connection is connection:
                dial.connection = None
        if connection.peer is not None and self._open.get(connection.peer) is connection:
            del self._open[connection.peer]
            self._events.on_disconnected(connection.peer)

    def _note(self, line: str) -> None:
        """Log a line, but not again and again what a peer's every attempt brings about."""
        now = time.monotonic()
        if now - self._noted.get(line, -QUIET_S) < QUIET_S:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted[line] = now
        # Part of it may be a peer's words: they write no control characters here.
        log.info("%s", "".join(char if char.isprintable() else "?" for char in line))

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass


def _open_spare() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class Stream:
    """Bytes of one connection, non-blocking. Plain TCP; TLS replaces this class."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_MS)

    def receive(self) -> bytes | None:
        """What is there; empty at the end, `None` if nothing is there yet."""
        try:
            return self.socket.recv(65_536)
        except BlockingIOError:
            return None

    def send(self, data: memoryview) -> int:
        """How many bytes were taken."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.socket.close()


@dataclass(eq=False)
class _Connection:
    stream: Stream
    # What was dialled, a disk or a seed's address; `None` for an accepted connection.
    dialled: str | None
    proof: Dialler | Acceptor
    peer: str | None = None
    process: str | None = None
    frames: FrameReader = field(default_factory=lambda: FrameReader(GREETING_BYTES_MAX))
    expires_at: float = field(default_factory=lambda: time.monotonic() + GREETING_MAX_S)
    unsent: int = 0
    _queue: deque[memoryview] = field(default_factory=deque)

    def send(self, frame: bytes) -> None:
        self._queue.append(memoryview(frame))
        self.unsent += len(frame)

    def flush(self) -> None:
        while self._queue:
            taken = self.stream.send(self._queue[0])
            self.unsent -= taken
            if taken < len(self._queue[0]):
                self._queue[0] = self._queue[0][taken:]
                return
            self._queue.popleft()

    def name(self) -> str:
        return f"with {self.peer}" if self.peer else f"to {self.dialled}" if self.dialled else "from a stranger"


@dataclass
class _Dial:
    """Attempts to reach one target, further and further apart."""

    next_at: float = 0.0
    attempts: int = 0
    connection: _Connection | None = None

    def pause(self, now: float) -> None:
        seconds = min(DIAL_MAX_S, DIAL_MIN_S * 2 ** min(self.attempts, 10))
        self.attempts += 1
        self.next_at = now + seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing


_NEVER_DIALLED = _Dial()


class _Resolver:
    """Host names to addresses without blocking the caller: a name that is not known yet is looked up in a thread.

    Addresses of one name take turns.
    """

    def __init__(self, on_resolved: Callable[[], None]) -> None:
        self._on_resolved = on_resolved
        self._found: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._turns: dict[str, int] = {}
        self._asked: set[str] = set()

    def resolve(self, host: str) -> str | None:
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        at, ips = self._found.get(host, (-DNS_CACHE_S, ()))
        if time.monotonic() - at < DNS_CACHE_S:
            turn = self._turns[host] = self._turns.get(host, -1) + 1
            return ips[turn % len(ips)] if ips else None
        if host not in self._asked:
            self._asked.add(host)
            threading.Thread(target=self._look_up, args=(host,), name="resolver", daemon=True).start()
        return None

    def _look_up(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            places = (str(info[4][0]) for info in sorted(found, key=lambda info: info[0]))
            ips = tuple(dict.fromkeys(places))
        except (OSError, UnicodeError):  # a name with a label that is too long is no OSError
            ips = ()
        self._found[host] = (time.monotonic(), ips)
        self._asked.discard(host)
        self._on_resolved()
