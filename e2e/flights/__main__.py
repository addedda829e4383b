"""`python -m flights`: the main job. Exits 0 only if everything held, else says what did not."""

import argparse
import sys
from pathlib import Path

from pyspark_walrus.session import JavaMissingError
from rich.console import Console
from walrus_client import WalrusError
from walrus_client.dev import DevError

from flights.report import show, write_summary
from flights.run import run


def main() -> int:
    """Run the job, print what happened and write `summary.json`."""
    parser = argparse.ArgumentParser(prog="flights", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(".walrus/run"), help="emptied first (default: %(default)s)")
    directory: Path = parser.parse_args().dir
    console = Console()
    try:
        report = run(directory, console)
    except (WalrusError, DevError, JavaMissingError, OSError) as error:
        return _failed(console, directory, f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        return _failed(console, directory, "interrupted")
    write_summary(report.summary(), directory / "summary.json")
    show(report, console)
    console.print(f"summary: {directory / 'summary.json'}   picture: {directory / 'flights.png'}", highlight=False)
    if not report.ok:
        for finding in report.findings:
            if not finding.held:
                console.print(f"did not hold: {finding.claim} ({finding.detail})", style="bold red", highlight=False)
        return 1
    console.print(
        f"[bold green]Everything held:[/] {report.produced:,} flights, one broker killed, none lost, none twice.",
        highlight=False,
    )
    return 0


def _failed(console: Console, directory: Path, error: str) -> int:
    console.print(f"the run ended early: {error}", style="bold red", highlight=False, markup=False)
    console.print(
        f"logs: {directory / 'spark.log'} and those of the brokers in {directory / 'brokers'}", highlight=False
    )
    directory.mkdir(parents=True, exist_ok=True)
    write_summary({"ok": False, "error": error}, directory / "summary.json")
    return 1


if __name__ == "__main__":
    sys.exit(main())
