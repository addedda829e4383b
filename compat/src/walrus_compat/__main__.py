"""`python -m walrus_compat`: the table of clients and features. Exits 0 only if all of it is as expected."""

import argparse
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import walrus_client
from rich.console import Console
from walrus_client.dev import NodeOptions, start_cluster

from walrus_compat import expected, report
from walrus_compat.clients import Client, all_clients
from walrus_compat.driver import Driver, DriverError
from walrus_compat.features import EACH, TOGETHER, Broken, Each, Feature, Together, found_wrong, longest_pause_s, pairs
from walrus_compat.report import Outcome
from walrus_compat.stage import Stage

DIRECTORY = Path(".walrus/compat")
PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
NODES = 3
GROUP_MAX = 3  # clients that are at work together: each has several processes


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="walrus_compat", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the features that take seconds")
    parser.add_argument("--client", nargs="+", metavar="NAME", help="only these clients")
    parser.add_argument("--feature", nargs="+", metavar="NAME", help="only these features")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="data and logs of the nodes go here")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no node is left behind
    console = Console()
    logging.getLogger("walrus_client").setLevel(logging.ERROR)  # it tells each try while a leader moves
    clients = [client for client in all_clients() if chosen.client is None or client.name in chosen.client]
    for client in clients:
        if not client.is_there():
            console.print(
                f"NOT RUN: {client.name}, whose driver is not there: tools/setup compat says why", style="yellow"
            )
    clients = [client for client in clients if client.is_there()]

    def is_chosen(feature: Feature) -> bool:
        return feature.name in chosen.feature if chosen.feature else feature.is_quick or not chosen.quick

    every: list[Feature] = [*EACH, *TOGETHER]
    features = [feature for feature in every if is_chosen(feature)]
    shutil.rmtree(chosen.directory, ignore_errors=True)
    chosen.directory.mkdir(parents=True)
    with on_stage(chosen.directory) as stage:
        versions = {client.name: version_of(stage, client) for client in clients}
        outcomes = dict(run(stage, clients, features, lambda line: console.print(line, highlight=False, markup=False)))
    console.print(report.table(versions, features, outcomes))
    is_whole = not (chosen.quick or chosen.client or chosen.feature) and len(clients) == len(all_clients())
    if is_whole:
        PAGE.write_text(report.page(versions, features, outcomes))
        console.print(f"written: {PAGE}", highlight=False)
    return 0 if all(outcome.is_fine for outcome in outcomes.values()) else 1


@contextmanager
def on_stage(directory: Path) -> Iterator[Stage]:
    """Three nodes that are gone afterwards; their logs stay."""
    options = NodeOptions(segment_age_min="0", monitor_check_ms=250)
    cluster = start_cluster(directory / "cluster", nodes=NODES, options=options)
    try:
        with walrus_client.Client(cluster.bootstrap) as walrus:
            yield Stage(cluster, walrus, directory)
    finally:
        cluster.stop()


def version_of(stage: Stage, client: Client) -> str:
    """The version of a client, as its library says."""
    with Driver(client, "about", errors=stage.directory / "about.log") as driver:
        (told,) = (event["versions"] for event in driver.finish() if "versions" in event)
    return str(told[client.package]).removeprefix("v")


def run(
    stage: Stage, clients: Sequence[Client], features: Sequence[Feature], say: Callable[[str], None]
) -> Iterator[tuple[tuple[str, str], Outcome]]:
    """Try all features, and tell what came of each with each client."""
    for feature in features:
        began = time.monotonic()
        if isinstance(feature, Each):
            found = {client.name: each(stage, client, feature) for client in clients}
        else:
            groups = (clients[first : first + GROUP_MAX] for first in range(0, len(clients), GROUP_MAX))
            found = {name: wrong for group in groups for name, wrong in together(stage, group, feature, say).items()}
        say(f"{feature.name}: {time.monotonic() - began:.0f} s")
        for client, wrong in found.items():
            outcome = Outcome(tuple(wrong), expected.reason(client, feature.name, tuple(wrong)) if wrong else None)
            for what in wrong:
                say(f"  {client}: {outcome.word}: {what}")
            yield (client, feature.name), outcome


def each(stage: Stage, client: Client, feature: Each) -> list[str]:
    """Try a feature with one client; return what was wrong."""
    try:
        feature.run(stage, client)
    except (Broken, DriverError, walrus_client.WalrusError) as error:
        return [f"{type(error).__name__}: {error}" if isinstance(error, walrus_client.WalrusError) else str(error)]
    return []


def together(
    stage: Stage, clients: Sequence[Client], feature: Together, say: Callable[[str], None]
) -> dict[str, list[str]]:
    """Have something happen while these clients are at work; return what was wrong with each."""
    found: dict[str, list[str]] = {client.name: [] for client in clients}
    with pairs(stage, clients, feature.config) as at_work:
        feature.happens(stage, [pair.topic for pair in at_work])
        for pair in at_work:
            pair.writer.stop()
        for pair in at_work:
            try:
                found[pair.client.name] += found_wrong(stage, pair, feature)
            except (DriverError, walrus_client.WalrusError) as error:
                found[pair.client.name].append(f"{pair.mode.name}: {error}")
        pauses = (f"{pair.client.name} {longest_pause_s(pair.writer.events):.1f}" for pair in at_work)
        say(f"longest times without an acknowledgement, in seconds: {', '.join(pauses)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
