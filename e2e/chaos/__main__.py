"""`python -m chaos`: faults for a while, and whether every promise held. Exits 0 only then."""

import argparse
import logging
import math
import random
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from walrus_client import WalrusError

from chaos import clocks, disks, stores
from chaos.clocks import Clocks
from chaos.faults import TRAITS, Fault, Kind
from chaos.network import Network, NetworkError, enter, hub, missing
from chaos.run import run
from chaos.scenarios import SCENARIOS, Cast
from chaos.schedule import schedule, write_quorum
from chaos.stores import StoreError
from chaos.workload import Shape
from chaos.world import World

DIRECTORY = Path(".walrus/chaos")
DURATION_S = 60.0


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="chaos", description="Faults on a cluster of real nodes; needs root.")
    parser.add_argument("--seed", type=int, help="the faults of an earlier run again; without it new ones")
    parser.add_argument(
        "--duration", type=float, metavar="SECONDS", help="how long faults are done; default: 60, or all of a scenario"
    )
    parser.add_argument(
        "--scenario",
        choices=SCENARIOS,
        metavar="NAME",
        help="; ".join(f"{name}: {each.what}" for name, each in SCENARIOS.items()),
    )
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 3, 5))
    parser.add_argument(
        "--copies", type=int, choices=(1, 3, 5), help="replicas of each segment; default: 3, or 1 of one node"
    )
    parser.add_argument("--only", type=Kind, nargs="+", default=list(Kind), metavar="KIND", help=", ".join(Kind))
    parser.add_argument("--segment-entries", type=int, default=2_000, help="records of a segment: few, to roll often")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="data, logs and summary.json go here")
    parser.add_argument("--can", action="store_true", help="only say whether it can run here; exits 2 if not")
    chosen = parser.parse_args()
    if chosen.copies is None:
        chosen.copies = min(3, chosen.nodes)
    if chosen.scenario and SCENARIOS[chosen.scenario].copies > chosen.copies:
        parser.error(f"{chosen.scenario} needs --copies {SCENARIOS[chosen.scenario].copies}: it costs some")
    if chosen.scenario and SCENARIOS[chosen.scenario].everywhere and chosen.nodes > chosen.copies:
        parser.error(f"{chosen.scenario} needs a copy of each segment on each node: --copies {chosen.nodes}")
    if chosen.duration is None:
        chosen.duration = math.inf if chosen.scenario else DURATION_S
    console = Console(highlight=False, soft_wrap=True)
    if reason := missing():
        console.print(f"chaos: cannot run here: {reason}", style="bold red")
        return 2
    if chosen.can:
        return 0
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(2**32)
    namespace = hub()
    if namespace is None:
        given = sys.argv[1:]
        return enter(given if "--seed" in given else [*given, "--seed", str(chosen.seed)])
    return _inside(namespace, chosen, console)


def _inside(namespace: str, chosen: argparse.Namespace, console: Console) -> int:
    directory = chosen.directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    logging.basicConfig(filename=directory / "clients.log", level=logging.INFO)
    again = f"uv run python -m chaos {shlex.join(sys.argv[1:])}"
    what = f"scenario {chosen.scenario}" if chosen.scenario else "faults of all kinds"
    replicas = f"{chosen.copies} {'copies' if chosen.copies > 1 else 'copy'} of each segment"
    console.print(f"seed {chosen.seed}, {what}, {chosen.nodes} nodes, {replicas}; again: {again}")
    options = (
        *("--segment-entries-max", str(chosen.segment_entries)),
        *("--segment-age-min", "0"),
        *("--monitor-check-ms", "500"),
        *(("--replication-factor", str(chosen.copies)) if chosen.copies > 1 else ()),
    )
    without = set(Kind) - set(chosen.only)
    if no_disks := disks.missing(directory):
        console.print(f"no disk can be made here, so none gets full: NOT RUN: {no_disks}", style="yellow")
        without.add(Kind.DISK_FULL)
    if no_clocks := clocks.missing():
        console.print(f"no clock can be made wrong here: NOT RUN: {no_clocks}", style="yellow")
        without |= {Kind.CLOCK, Kind.SUSPEND}
    stores.program()  # built before anything runs
    began = time.monotonic()
    network = Network(namespace, chosen.nodes)
    shape = Shape()
    world = World(
        directory,
        network,
        nodes=chosen.nodes,
        options=options,
        own_disks=not no_disks,
        clocks=None if no_clocks else Clocks(directory),
        topic=shape.places()[0][0],
    )
    try:
        report = run(
            world,
            _faults(chosen, frozenset(without)),
            seed=chosen.seed,
            duration_s=chosen.duration,
            shape=shape,
            write_quorum=write_quorum(chosen.copies),
            say=lambda line: console.print(f"{time.monotonic() - began:6.1f} s {line}"),
            directory=directory,
            forgets=chosen.scenario is None or SCENARIOS[chosen.scenario].forgets,
            vanishes=chosen.scenario is not None and SCENARIOS[chosen.scenario].vanishes,
            planned=chosen.nodes > 1 and chosen.scenario is not None and SCENARIOS[chosen.scenario].planned,
        )
    except (WalrusError, NetworkError, StoreError, TimeoutError, RuntimeError, AssertionError, OSError) as failure:
        console.print(f"FAILED: {type(failure).__name__}: {failure}", style="bold red")
        console.print(f"logs are kept in {_keep_logs(directory, chosen)}; again: {again}")
        return 1
    finally:
        world.end()
    console.print(report.summary())
    if not report.ok():
        console.print("FAILED: promises were broken", style="bold red")
        kept = _keep_logs(directory, chosen)
        console.print(f"data are in {directory} until the next run, logs are kept in {kept}; again: {again}")
        return 1
    world.forget()
    console.print(f"every promise held through {len(report.faults)} faults", style="bold green")
    return 0


def _keep_logs(directory: Path, chosen: argparse.Namespace) -> Path:
    """Puts the logs of a failed run where the next run leaves them; says where."""
    kept = directory.with_name(f"{directory.name}-failed") / f"{chosen.scenario or 'all'}-{chosen.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for file in (*directory.glob("*.log"), *directory.glob("summary.json")):
        shutil.copy2(file, kept)
    return kept


def _faults(chosen: argparse.Namespace, without: frozenset[Kind]) -> Iterator[Fault]:
    if chosen.scenario is None:
        return schedule(chosen.seed, nodes=chosen.nodes, copies=chosen.copies, without=without)
    cast = Cast(random.Random(chosen.seed), chosen.nodes, chosen.copies)
    drawn = SCENARIOS[chosen.scenario].faults(cast)
    return (fault for fault in drawn if fault.kind not in without and TRAITS[fault.kind].copies <= chosen.copies)


if __name__ == "__main__":
    sys.exit(main())
