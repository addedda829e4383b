"""One run: a cluster, a workload, the faults of a seed one after the other, and the verdict."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from walrus_client import Client

from chaos.faults import Fault
from chaos.verdict import Verdict, judge
from chaos.workload import Shape, Workload, running
from chaos.world import World

PROGRESS_TIMEOUT_S = 180.0

Say = Callable[[str], None]


@dataclass
class Report:
    """What a run did, and what it found."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)  # from the healing of each fault until all producers moved on
    acked: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def ok(self) -> bool:
        """Whether every promise held."""
        return all(self.verdicts.values())

    def summary(self) -> str:
        """As JSON."""
        resumed = sorted(self.resumed_s)
        facts = {
            "seed": self.seed,
            "ok": self.ok(),
            "faults": Counter(str(fault.kind) for fault in self.faults),
            "acknowledged": self.acked,
            "resumed_s": {"median": resumed[len(resumed) // 2], "most": resumed[-1]} if resumed else None,
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
    say: Say,
    directory: Path,
) -> Report:
    """Does *faults* for *duration_s*, then checks everything. Raises what made the cluster or a client give up."""
    report = Report(seed)
    world.found()
    say(f"{len(world.nodes)} nodes serve")
    bootstraps = [_from(world, node) for node in world.nodes]
    with running(shape, bootstraps) as workload:
        workload.wait_for_progress(PROGRESS_TIMEOUT_S)
        began = time.monotonic()
        for fault in faults:
            if time.monotonic() - began >= duration_s:
                break
            _once(world, workload, fault, report, say)
    report.acked = workload.total()
    say(f"{report.acked} records acknowledged; checking what the log holds")
    report.verdicts = _judge(world, workload)
    (directory / "summary.json").write_text(report.summary() + "\n")
    return report


def _once(world: World, workload: Workload, fault: Fault, report: Report, say: Say) -> None:
    before = workload.total()
    done = world.inject(fault)
    threading.Event().wait(fault.lasting_ms / 1000)
    world.heal(done)
    healed = time.monotonic()
    workload.wait_for_progress(PROGRESS_TIMEOUT_S)
    resumed_s = time.monotonic() - healed
    if dead := world.dead():
        raise RuntimeError("; ".join(dead))
    report.faults.append(done)
    report.resumed_s.append(resumed_s)
    say(f"{len(report.faults):4} {done}: {workload.total() - before} acknowledged, all go on {resumed_s:.1f} s after")
    threading.Event().wait(fault.rest_ms / 1000)


def _judge(world: World, workload: Workload) -> dict[str, Verdict]:
    """Reads every partition through every node; each must show the same log."""
    verdicts = {}
    for topic, partition in workload.shape.places():
        acked = {n: count for n, count in workload.acked.items() if workload.shape.place(n) == (topic, partition)}
        for node in world.nodes:
            with Client(world.grpc_address(node)) as client:
                records = ((record.offset, record.value) for record in client.read(topic, partition=partition))
                verdict = judge(records, acked=acked, seen=workload.seen[topic, partition])
            verdicts[f"{topic}/{partition} through node-{node}"] = verdict
    return verdicts


def _from(world: World, node: int) -> str:
    """All addresses, those of this node first."""
    others = [other for other in world.nodes if other != node]
    return ",".join(world.grpc_address(each) for each in (node, *others))
