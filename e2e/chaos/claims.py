"""What each node claims while faults are done, held against what was known before it was asked.

A node may say that it is not sure. What it says as an answer is final, whatever it has slept through: where a partition
ends, that an offset is beyond its end, which topics there are, that a topic is unknown.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc
from walrus_client import WalrusError, errors
from walrus_client.text import TextClient
from walrus_client.v1 import log_pb2, log_pb2_grpc

from chaos.workload import CURSOR_TOPIC, Workload

PAUSE_S = 0.02
PATIENCE_S = 5.0
SHOWN = 5
ERROR_TRAILER = "walrus-error-bin"  # a walrus.v1.Error


@dataclass
class Claims:
    """What all nodes claimed. `unsure`: refusals that may be repeated, and nodes that were not there."""

    final: Counter[str] = field(default_factory=Counter)  # answers by kind
    unsure: int = 0
    false: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether every claim was true, and there were some of each kind."""
        return not self.false and all(self.final[kind] for kind in ("end", "page", "topics", "state"))

    def __str__(self) -> str:
        made = ", ".join(f"{count} {kind}" for kind, count in sorted(self.final.items()))
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else ""
        return f"claims: {made}; {self.unsure} times not sure{wrong}"


@contextmanager
def held_to_account(workload: Workload, nodes: Sequence[tuple[str, str]]) -> Iterator[Claims]:
    """Asks each node (its gRPC and its text address) while the block runs."""
    claims, over = Claims(), threading.Event()
    threads = [
        threading.Thread(target=_ask, args=(claims, workload, grpc_address, text_address, over), daemon=True)
        for grpc_address, text_address in nodes
    ]
    for thread in threads:
        thread.start()
    try:
        yield claims
    finally:
        over.set()
        for thread in threads:
            thread.join()


def check_end(claims: Claims, where: str, known: int, end: int) -> None:
    """A node said that the partition ends there; *known* records were read from it before the node was asked."""
    claims.final["end"] += 1
    if end < known:
        claims.false.append(f"{where} ends at {end}, and {known} records had been read")


def check_page(claims: Claims, where: str, known: int, refusal: str) -> None:
    """A node was asked for a record that had been read; *refusal* is why it gave none, empty if it gave it."""
    claims.final["page"] += 1
    if refusal:
        claims.false.append(f"{where}: {known} records had been read, and the last one was refused: {refusal}")


def check_names(claims: Claims, where: str, kind: str, wanted: set[str], told: str) -> None:
    """A node told names of topics, or a refusal; the wanted ones had been created before."""
    claims.final[kind] += 1
    if missing := sorted(name for name in wanted if name not in told):
        claims.false.append(f"{where} does not know {', '.join(missing)}: {told[:200]!r}")


def _ask(claims: Claims, workload: Workload, grpc_address: str, text_address: str, over: threading.Event) -> None:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 200)]
    with grpc.insecure_channel(grpc_address, options=options) as channel:
        stub = log_pb2_grpc.LogStub(channel)  # type: ignore[no-untyped-call] # generated
        for turn in count():
            if over.wait(PAUSE_S):
                return
            places = list(workload.places)  # a topic that is taken back comes later
            _ask_by_grpc(claims, workload, stub, grpc_address, places[turn % len(places)])
            _ask_by_text(claims, text_address, {topic for topic, _ in places} | {CURSOR_TOPIC})


def _ask_by_grpc(claims: Claims, workload: Workload, stub: Any, node: str, place: tuple[str, int]) -> None:
    topic, partition = place
    where, known = f"{topic}/{partition} by {node}", len(workload.seen[place])
    try:
        listed = stub.ListSegments(log_pb2.ListSegmentsRequest(topic=topic), timeout=PATIENCE_S)
        ends = {each.partition: each.high_watermark for each in listed.partitions}
        check_end(claims, where, known, ends.get(partition, 0))
    except grpc.RpcError as refused:
        _note_refusal(claims, where, "end", known, refused)
    if known == 0:
        return
    try:
        request = log_pb2.ReadRequest(topic=topic, partition=partition, offset=known - 1, bytes_max=1)
        given = next(iter(stub.Read(request, timeout=PATIENCE_S)), None)
        check_page(claims, where, known, "" if given is not None and given.records else "an empty page")
    except grpc.RpcError as refused:
        _note_refusal(claims, where, "page", known, refused)


def _note_refusal(claims: Claims, where: str, kind: str, known: int, refused: Any) -> None:
    trailers = (value for key, value in refused.trailing_metadata() or () if key == ERROR_TRAILER)
    trailer = next(trailers, None)
    error = log_pb2.Error.FromString(trailer) if trailer else None
    if error is None or error.retryable:
        claims.unsure += 1
        return
    claims.final[kind] += 1
    claims.false.append(f"{where}: {known} records had been read, and it says {error.reason}: {error.message}")


def _ask_by_text(claims: Claims, address: str, topics: set[str]) -> None:
    try:
        with TextClient(address, timeout_s=PATIENCE_S) as client:
            for kind, command, wanted in (
                ("topics", "TOPICS", topics),
                *(("state", f"STATE {topic}", {"current_segment"}) for topic in sorted(topics)),
            ):
                answer = client.request(command)
                if answer.startswith("ERR") and "unknown" not in answer.lower():
                    claims.unsure += 1
                else:
                    check_names(claims, f"{command} by {address}", kind, wanted, answer)
    except (errors.Unavailable, WalrusError):
        claims.unsure += 1
