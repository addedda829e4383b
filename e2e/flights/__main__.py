"""`python -m flights`: the main job. Exits 0 only if everything held, else says what did not."""

import argparse
import sys
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark_walrus.errors import message_within
from pyspark_walrus.session import JavaMissingError
from rich.console import Console
from walrus_client import WalrusError
from walrus_client.dev import DevError

from flights.report import show, write_summary
from flights.run import BROKERS, PICTURE, SPARK_LOG, run
from flights.sender import SenderKind

DIRECTORY: Final = ".walrus/run"
SUMMARY: Final = "summary.json"


def main() -> int:
    """Run the job, print what happened and write `summary.json`."""
    parser = argparse.ArgumentParser(prog="python -m flights", description="The main job on real input.")
    parser.add_argument(
        "--producer", type=SenderKind, choices=list(SenderKind), default=SenderKind.WALRUS, help="whose client sends"
    )
    sender: SenderKind = parser.parse_args().producer
    directory, console = Path(DIRECTORY), Console()
    try:
        report = run(directory, console, sender)
    except (WalrusError, DevError, JavaMissingError, OSError) as error:
        return _failed(console, directory, f"{type(error).__name__}: {error}")
    except PySparkException as error:
        return _failed(console, directory, message_within(str(error)) or f"Spark: {str(error).splitlines()[0]}")
    except KeyboardInterrupt:
        return _failed(console, directory, "interrupted")
    write_summary(report.summary(), directory / SUMMARY)
    show(report, console)
    console.print(f"summary: {directory / SUMMARY}   picture: {directory / PICTURE}", highlight=False)
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
    console.print(f"logs: {directory / SPARK_LOG} and those of the brokers in {directory / BROKERS}", highlight=False)
    directory.mkdir(parents=True, exist_ok=True)
    write_summary({"ok": False, "error": error}, directory / SUMMARY)
    return 1


if __name__ == "__main__":
    sys.exit(main())
