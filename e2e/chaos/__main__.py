"""`python -m chaos`: faults for a while, and whether every promise held. Exits 0 only then."""

import argparse
import logging
import random
import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console
from walrus_client import WalrusError

from chaos import disks
from chaos.faults import Kind
from chaos.network import Network, NetworkError, enter, hub, missing
from chaos.run import run
from chaos.schedule import schedule
from chaos.workload import Shape
from chaos.world import World

DIRECTORY = Path(".walrus/chaos")
COPIES = 1  # of a segment, in this version


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="chaos", description="Faults on a cluster of real nodes; needs root.")
    parser.add_argument("--seed", type=int, help="the faults of an earlier run again; without it new ones")
    parser.add_argument("--duration", type=float, default=60, metavar="SECONDS", help="how long faults are done")
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 3, 5))
    parser.add_argument("--only", type=Kind, nargs="+", default=list(Kind), metavar="KIND", help=", ".join(Kind))
    parser.add_argument("--segment-entries", type=int, default=2_000, help="records of a segment: few, to roll often")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="data, logs and summary.json go here")
    chosen = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if reason := missing():
        console.print(f"chaos: cannot run here: {reason}", style="bold red")
        return 2
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
    console.print(f"seed {chosen.seed}, {chosen.nodes} nodes, {chosen.duration:g} s; again: {again}")
    options = (
        *("--segment-entries-max", str(chosen.segment_entries)),
        *("--monitor-check-ms", "500"),
    )
    without = set(Kind) - set(chosen.only)
    if no_disks := disks.missing(directory):
        console.print(f"no disk can be made here, so none gets full: {no_disks}", style="yellow")
        without.add(Kind.DISK_FULL)
    network = Network(namespace, chosen.nodes)
    world = World(directory, network, nodes=chosen.nodes, options=options, own_disks=not no_disks)
    try:
        report = run(
            world,
            schedule(chosen.seed, nodes=chosen.nodes, copies=COPIES, without=frozenset(without)),
            seed=chosen.seed,
            duration_s=chosen.duration,
            shape=Shape(),
            say=lambda line: console.print(line),
            directory=directory,
        )
    except (WalrusError, NetworkError, TimeoutError, RuntimeError, AssertionError, OSError) as failure:
        console.print(f"FAILED: {type(failure).__name__}: {failure}", style="bold red")
        console.print(f"the nodes' logs are in {directory}; again: {again}")
        return 1
    finally:
        world.end()
    console.print(report.summary())
    if not report.ok():
        console.print(
            f"FAILED: promises were broken; data and logs are in {directory}; again: {again}", style="bold red"
        )
        return 1
    world.forget()
    console.print(f"every promise held through {len(report.faults)} faults", style="bold green")
    return 0


if __name__ == "__main__":
    sys.exit(main())
