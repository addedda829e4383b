"""One run: a cluster, a workload, the faults of a seed one after the other, and the verdict."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from harness.waiting import wait_until
from walrus_client import Client, Partition

from chaos import compacting, kafka
from chaos.claims import held_to_account
from chaos.cursor import judge_cursor
from chaos.disk_verdict import Extent, judge_disks
from chaos.failovers import Failovers
from chaos.faults import Fault, Kind
from chaos.leftovers import Leftovers, judge_leftovers
from chaos.preparation import prepared
from chaos.vanishing import Vanishing, vanishing
from chaos.verdict import Verdict, judge
from chaos.workload import CURSOR_TOPIC, Crew, Shape, Workload, running
from chaos.world import World

PROGRESS_TIMEOUT_S = 180.0
LEFT_TIMEOUT_S, LEFT_LOOK_S = 60.0, 1.0
SLOW_S = 5.0  # whoever takes longer to go on is named

Say = Callable[[str], None]


class Holds(Protocol):
    """What a verdict can say."""

    def __bool__(self) -> bool: ...


@dataclass(frozen=True)
class Answers:
    """How often a reader was refused, by error, what it rightly asked for: others than those that are repeated."""

    refused: dict[str, int]

    def __bool__(self) -> bool:
        """Whether every promise held."""
        return not self.refused

    def __str__(self) -> str:
        return f"refused for good: {self.refused}" if self.refused else "nothing wrong"


@dataclass
class Report:
    """What a run did, and what it found."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)  # from the healing of each fault until all producers moved on
    through_s: list[float] = field(default_factory=list)  # from the start of faults that were outlived, the same
    acked: int = 0
    copies: int = 0  # how many copies of segments were compared on the disks
    verdicts: dict[str, Holds] = field(default_factory=dict)

    def ok(self) -> bool:
        """Whether every promise held."""
        return all(self.verdicts.values())

    def summary(self) -> str:
        """The result as JSON."""
        facts = {
            "seed": self.seed,
            "ok": self.ok(),
            "faults": Counter(str(fault.kind) for fault in self.faults),
            "acknowledged": self.acked,
            "copies_compared": self.copies,
            "resumed_s": _spread(self.resumed_s),
            "resumed_in_spite_s": _spread(self.through_s),
            "verdicts": {place: str(verdict) for place, verdict in self.verdicts.items()},
        }
        return json.dumps(facts, indent=2)


def run(
    world: World,
    faults: Iterator[Fault],
    *,
    seed: int,
    duration_s: float,
    shape: Shape,
    write_quorum: int,
    say: Say,
    directory: Path,
    forgets: bool = False,
    planned: bool = False,
    vanishes: bool = False,
) -> Report:
    """Does *faults* until they end or *duration_s* is over, then checks everything.

    With *forgets* the metadata may lose commands, and with them that a topic was deleted. With *planned* each fault
    waits until all nodes have caught up, and nothing may fail over. With *vanishes* records must go meanwhile, of all
    topics that let some go. Raises what made the cluster or a client give up.
    """
    report = Report(seed)
    failovers = Failovers() if planned else None
    world.found()
    say(f"{len(world.nodes)} nodes serve")
    bootstraps = [_from(world, node) for node in world.nodes]
    texts = [world.text_address(node) for node in world.nodes]
    kafkas = [_kafka_from(world, node) for node in world.nodes]
    asked = [(world.grpc_address(node), world.text_address(node)) for node in world.nodes]
    with (
        running(shape, bootstraps, texts, kafkas) as crew,
        vanishing(bootstraps, crew.workload.gate, again=not forgets) as vanished,
        held_to_account(crew.workload, asked) as claims,
    ):
        workload = crew.workload
        workload.wait_for_progress(PROGRESS_TIMEOUT_S)
        began = time.monotonic()
        for fault in faults:
            if time.monotonic() - began >= duration_s:
                break
            _once(world, crew, vanished, fault, report, say, failovers)
        went = vanished.went()
    if failovers is not None:
        failovers.note(world.failovers())
        report.verdicts["failovers"] = failovers
    report.verdicts["claims of every node"] = claims
    report.verdicts["records that expire"] = vanished.expiring
    report.verdicts["records of keys"] = vanished.compacted
    if vanished.lives is not None:
        report.verdicts["topics made again"] = vanished.lives
    if vanishes:
        report.verdicts["gone while faults were done"] = went
    if not forgets:
        say("waiting until nothing is left on the disks of what is gone")
        report.verdicts["left on the disks"] = _wait_for_leftovers(world)
    report.acked = workload.total()
    say(f"{report.acked} records acknowledged; checking what the log and the disks hold")
    _judge(world, workload, vanished, report, write_quorum)
    (directory / "summary.json").write_text(report.summary() + "\n")
    return report


def _once(
    world: World,
    crew: Crew,
    vanished: Vanishing,
    fault: Fault,
    report: Report,
    say: Say,
    failovers: Failovers | None,
) -> None:
    workload = crew.workload
    if failovers is not None:
        world.wait_until_all_have_caught_up()
        failovers.note(world.failovers())
    before, in_spite = workload.total(), ""
    with prepared(world, crew, fault):
        done = world.aimed(fault)
        struck = time.monotonic()
        world.inject(done)
        if done.kind is Kind.CLOCK and done.clock_wrong_s > 0:
            vanished.clocks.go_ahead(done.nodes, struck)
        if fault.through:
            last = workload.wait_for_progress(PROGRESS_TIMEOUT_S)
            report.through_s.append(time.monotonic() - struck)
            in_spite = f" in spite of it after {report.through_s[-1]:.1f} s (last: {last}),"
        threading.Event().wait(max(0.0, fault.lasting_ms / 1000 - (time.monotonic() - struck)))
        if failovers is not None:
            failovers.note(world.failovers())
        world.heal(done)
    healed = time.monotonic()
    vanished.clocks.are_right(healed)
    last = workload.wait_for_progress(PROGRESS_TIMEOUT_S, meanwhile=world.tend, of_kafka=True)
    resumed_s = time.monotonic() - healed
    world.tend()
    if dead := world.dead():
        raise RuntimeError("; ".join(dead))
    report.faults.append(done)
    report.resumed_s.append(resumed_s)
    said = f"{len(report.faults):4} {done}: {workload.total() - before} acknowledged, all go on{in_spite}"
    say(f"{said} {resumed_s:.1f} s after" + (f" (last: {last})" if resumed_s > SLOW_S else ""))
    threading.Event().wait(fault.rest_ms / 1000)


def _wait_for_leftovers(world: World) -> Leftovers:
    """Waits until no disk has anything of a segment that no topic has, for a while at most; says what is left then."""
    left = Leftovers()

    def is_clean() -> bool:
        nonlocal left
        left = judge_leftovers(world.listed_segments(), world.segments_on_disks())
        return bool(left)

    with suppress(TimeoutError):
        wait_until("disks to be clean", is_clean, timeout_s=LEFT_TIMEOUT_S, every_s=LEFT_LOOK_S)
    return left


def _judge(world: World, workload: Workload, vanished: Vanishing, report: Report, write_quorum: int) -> None:
    """Reads every partition through every node, then kills all and reads their disks: all must show the same log."""
    verdicts = report.verdicts
    held: dict[tuple[str, int], Sequence[int]] = {(compacting.TOPIC, 0): vanished.compacted.hashes()}
    for topic, partition in [*workload.places, (CURSOR_TOPIC, 0)]:
        for node in world.nodes:
            verdict = _read(world, workload, topic, partition, node)
            held[topic, partition] = verdict.held
            for group in workload.groups:
                if topic in kafka.TOPICS:
                    group.compare((topic, partition), verdict.held)
            verdicts[f"{topic}/{partition} through node-{node}"] = verdict
    verdicts["cursor"] = judge_cursor(workload.cursor)
    verdicts["claims that a cursor is at its end"] = workload.emptiness
    for group in workload.groups:
        verdicts[f"group {group.name}"] = group
    verdicts["answers to readers"] = Answers(dict(workload.refusals))
    with Client(world.bootstrap) as client:
        partitions = {(topic, each.partition): each for topic, _ in held for each in client.segments(topic)}
    world.end()
    stores = world.stores()
    for place, values in held.items():
        extents = _extents(partitions[place])
        copies = {
            (extent.segment, node): logs[extent.segment].batches()
            for extent in extents
            for node, logs in stores.items()
            if extent.segment in logs
        }
        on_disks = judge_disks(
            extents, copies, held=values, write_quorum=write_quorum, unwrap=partial(_unwrapped, place[0])
        )
        report.copies += on_disks.copies
        verdicts[f"{place[0]}/{place[1]} on the disks"] = on_disks


def _read(world: World, workload: Workload, topic: str, partition: int, node: int) -> Verdict:
    acked = {n: count for n, count in workload.acked.items() if workload.place_of[n] == (topic, partition)}
    with Client(_from(world, node)) as client:
        pairs = ((each.offset, _unwrapped(topic, each.value)) for each in client.read(topic, partition))
        return judge(pairs, acked=acked, seen=workload.seen.get((topic, partition), ()))


def _unwrapped(topic: str, value: bytes | None) -> bytes | None:
    return bytes.fromhex(value.decode()) if topic == CURSOR_TOPIC and value is not None else value


def _extents(partition: Partition) -> list[Extent]:
    ends = [after.base_offset for _, after in pairwise(partition.segments)] + [partition.high_watermark]
    return [
        Extent(segment.uuid, segment.base_offset, segment.end_offset if segment.state == "sealed" else end)
        for segment, end in zip(partition.segments, ends, strict=True)
    ]


def _from(world: World, node: int) -> str:
    """All addresses, those of this node first."""
    others = [other for other in world.nodes if other != node]
    return ",".join(world.grpc_address(each) for each in (node, *others))


def _kafka_from(world: World, node: int) -> str:
    """The addresses of all listeners of Kafka, that of this node first."""
    others = [other for other in world.nodes if other != node]
    return ",".join(world.kafka_address(each) for each in (node, *others))


def _spread(seconds: list[float]) -> dict[str, float] | None:
    ordered = sorted(seconds)
    return {"median": round(ordered[len(ordered) // 2], 2), "most": round(ordered[-1], 2)} if ordered else None
