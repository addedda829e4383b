"""`python -m walrus_compat`: the table of clients and features. Exits 0 only if all of it is as expected."""

import argparse
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import walrus_client
from rich.console import Console
from walrus_client.dev import NodeOptions, start_cluster

from walrus_compat import apache, kinds, load, report
from walrus_compat.clients import Client, all_clients
from walrus_compat.driver import Driver
from walrus_compat.feature import Broken, Each, Feature, Found, Wrong
from walrus_compat.features import FEATURES
from walrus_compat.guardian import guarded
from walrus_compat.kafka import on_kafka
from walrus_compat.program import Program
from walrus_compat.programs import PROGRAMS
from walrus_compat.results import Outcome, Results
from walrus_compat.stage import Stage, Walrus

DIRECTORY = Path(".walrus/compat")
PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
NODES = 3
FILE_WIDTH = 200  # in columns, so that all clients can be read in a log
GROUP_MAX = 3  # clients that are at work together: each has several processes

Say = Callable[[str], None]


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="walrus_compat", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the features that take seconds, and no Apache Kafka")
    parser.add_argument("--client", nargs="+", metavar="NAME", help="only these clients")
    parser.add_argument("--feature", nargs="+", metavar="NAME", help="only these features")
    parser.add_argument("--program", nargs="+", metavar="NAME", help="only these programs")
    parser.add_argument("--kafka", action="store_true", help="with Apache Kafka in the place of Walrus")
    parser.add_argument("--page", action="store_true", help="try nothing; write the page from what was tried in parts")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="data and logs of the nodes go here")
    chosen = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    kept = chosen.directory.with_suffix(".json")
    if chosen.page:
        return write_page(Results.load(kept), say)
    logging.getLogger("walrus_client").setLevel(logging.ERROR)  # it tells each try while a leader moves
    clients = [client for client in all_clients() if chosen.client is None or client.name in chosen.client]
    for client in clients:
        if not client.is_there():
            say(f"NOT RUN: {client.name}, whose driver is not there: tools/setup compat says why")
    clients = [client for client in clients if client.is_there()]
    is_some = bool(chosen.client or chosen.feature or chosen.program)

    def is_chosen(tried: Feature | Program, named: list[str] | None) -> bool:
        return tried.name in (named or ()) if is_some else tried.is_quick or not chosen.quick

    features = [each for each in FEATURES if is_chosen(each, chosen.feature) or (chosen.client and not chosen.feature)]
    programs = [each for each in PROGRAMS if is_chosen(each, chosen.program)]
    for program in programs:
        if not program.is_there():
            say(f"NOT RUN: {program.name}: tools/setup compat says why")
    programs = [program for program in programs if program.is_there()]
    shutil.rmtree(chosen.directory, ignore_errors=True)
    chosen.directory.mkdir(parents=True)

    results = Results()
    with (on_kafka if chosen.kafka else on_walrus)(chosen.directory) as stage:
        results.versions = {client.name: version_of(stage, client) for client in clients}
        results.features = dict(run(stage, clients, features, say))
        results.programs = {program.name: alone(say, program, stage) for program in programs}
    if not (chosen.kafka or chosen.quick):
        results.features |= compared(chosen.directory, clients, features, results, say)
    if features:
        console.print(report.table(results, features))
    if programs:
        console.print(report.table_of_programs(results, programs))
    if not (chosen.kafka or chosen.quick):
        so_far = Results.load(kept) if is_some else Results()
        so_far.add(results)
        so_far.save(kept)
        if not is_some:
            write_page(so_far, say)
    return 0 if results.is_fine else 1


def write_page(results: Results, say: Say) -> int:
    """Write the page, if nothing is missing; return an exit status."""
    clients = [client.name for client in all_clients()]
    missing = results.missing(clients, [each.name for each in FEATURES], [each.name for each in PROGRAMS])
    if missing:
        say(f"{PAGE.name} is not written, for these were not tried: {', '.join(missing)}")
        return 1
    PAGE.write_text(report.page(results, clients, FEATURES, PROGRAMS))
    say(f"written: {PAGE}")
    return 0 if results.is_fine else 1


@contextmanager
def on_walrus(directory: Path) -> Iterator[Stage]:
    """Three nodes that are gone afterwards; their logs stay."""
    options = NodeOptions(segment_age_min="0", monitor_check_ms=250, no_auto_create_topics=True)
    cluster = start_cluster(directory / "cluster", nodes=NODES, options=options)
    try:
        with walrus_client.Client(cluster.bootstrap) as client:
            yield Walrus(directory, cluster, client)
    finally:
        cluster.stop()


def version_of(stage: Stage, client: Client) -> str:
    """The version of a client, as its library says."""
    with Driver(client, "about", errors=stage.directory / "about.log") as driver:
        (told,) = (event["versions"] for event in driver.finish() if "versions" in event)
    return str(told[client.package]).removeprefix("v")


def run(
    stage: Stage, clients: Sequence[Client], features: Sequence[Feature], say: Say
) -> Iterator[tuple[tuple[str, str], Outcome]]:
    """Try all features, and tell what came of each with each client."""
    for feature in features:
        began = time.monotonic()
        able = [client for client in clients if feature.name not in client.lacks]
        found = tried(stage, able, feature, say)
        say(f"{feature.name}: {time.monotonic() - began:.0f} s")
        for client in clients:
            wrong = tuple(found.get(client.name, ()))
            for line in kinds.summary(wrong):
                say(f"  {client.name}: {line}")
            yield (client.name, feature.name), Outcome(wrong, is_lacking=client not in able)


def tried(stage: Stage, clients: Sequence[Client], feature: Feature, say: Say) -> Found:
    """Try a feature with these clients; return what was wrong with each."""
    if isinstance(feature, Each):
        with ThreadPoolExecutor(1 if feature.is_alone else GROUP_MAX) as pool:
            wrongs = pool.map(lambda client: wrong_with(lambda: feature.run(stage, client)), clients)
            return dict(zip((client.name for client in clients), wrongs, strict=True))
    found: dict[str, Sequence[Wrong]] = {}
    for first in range(0, len(clients), GROUP_MAX):
        wrong, pauses = load.tried(stage, clients[first : first + GROUP_MAX], feature)
        shown = ", ".join(f"{name} {pause_s:.1f}" for name, pause_s in pauses.items())
        say(f"longest times without an acknowledgement, in seconds: {shown}")
        found |= wrong
    return found


def alone(say: Say, program: Program, stage: Stage) -> Outcome:
    """Try a program; tell what came of it. Apache Kafka excuses nothing that it is told."""
    began = time.monotonic()
    wrong = wrong_with(lambda: program.run(stage))
    say(f"{program.name}: {time.monotonic() - began:.0f} s")
    for each in wrong:
        say(f"  {each.what}")
    return Outcome(tuple(wrong), with_kafka=())


def wrong_with(run: Callable[[], None]) -> Sequence[Wrong]:
    """Run something, and return what was wrong with it."""
    try:
        run()
    except Broken as error:
        return error.wrong
    except Exception as error:
        return [Wrong(f"{type(error).__name__}: {error}")]
    return []


def compared(
    directory: Path, clients: Sequence[Client], features: Sequence[Feature], results: Results, say: Say
) -> dict[tuple[str, str], Outcome]:
    """Try again with Apache Kafka what told an application of errors and has nothing else wrong."""
    told = {key: outcome for key, outcome in results.features.items() if outcome.is_to_compare}
    if not told:
        return {}
    if not apache.is_there():
        say("NOT RUN: Apache Kafka, to compare with: tools/setup compat says why")
        return {}
    say("with Apache Kafka, for what applications were told:")
    found = {}
    with on_kafka(directory) as stage:
        for feature in features:
            some = [client for client in clients if (client.name, feature.name) in told]
            if some:
                for key, outcome in run(stage, some, [feature], say):
                    found[key] = Outcome(told[key].wrong, outcome.wrong)
    return found


if __name__ == "__main__":
    sys.exit(guarded(main))
